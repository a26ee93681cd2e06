"""The words of the phrase-book, as tables that a linguist can read and mend.

A line is `French | English | …`. Regular forms are left out: plurals, feminines and conjugations are
made by rule in `french.py` and `english.py`; an irregular plural stands in parentheses, an irregular feminine
or past tense after a comma. `m` and `f` are the genders; a word with `s` or `p` after them has only that number.
Nouns stand in classes, and verbs and adjectives name the classes they go with: that keeps sentences sensible,
and it keeps translation a function if French leaves a choice (`le` is "him" or "it" by its verb).
`much_ADV` is an English word with its part of speech, where that is not its usual one.
"""

__all__ = [
    "ADJECTIVES", "AGE_NUMBERS", "AMOUNTS", "BODY_PARTS", "CATENATIVES", "CITIES", "COLOURS",
    "COMMUNICATION", "COUNTRIES", "DAYS", "DITRANSITIVES", "FREQUENCIES", "GAMES", "GREETINGS", "GROUPS",
    "IDIOMS", "INSTRUMENTS", "INTENSIFIERS", "INTRANSITIVES", "IRREGULAR_VERBS", "LANGUAGES", "MANNERS",
    "MASS_AMOUNTS", "MOTIONS", "NAMES", "NATIONALITIES", "NOUNS", "NUMBERS", "OPINIONS", "OWNERS",
    "PERSONAL", "PORTIONS", "REFLEXIVES", "STATIVES", "STRONG_PRONOUNS", "STUDIES", "TIMES", "TRANSITIVES",
    "TRANSPORT", "WEATHER",
]  # fmt: skip

# Names for several classes at once, so that a verb or an adjective need not name them all.
GROUPS = {
    "food": "fruit dish solid",
    "animal": "pet wild",
    "clothes": "garment accessory",
    "transport": "drivable vehicle",
    "goods": "garment accessory drivable vehicle furniture device object",
    "places": "building inside area venue",
}

NOUNS = {
    "kin": """
        père ms | father
        mère fs | mother
        frère m | brother
        sœur f | sister
        fils m | son
        fille f | daughter
        oncle m | uncle
        tante f | aunt
        cousin m, cousine f | cousin
        grand-père (grands-pères) m | grandfather
        grand-mère (grands-mères) f | grandmother
        neveu m | nephew
        nièce f | niece
        parents mp | parents
    """,
    "friend": """
        ami m, amie f | friend
        voisin m, voisine f | neighbour
        collègue m | colleague
        client m, cliente f | customer
    """,
    "person": """
        homme m | man (men)
        femme f | woman (women)
        garçon m | boy
        fille f | girl
        enfant m | child (children)
        roi m | king
        reine f | queen
    """,
    "profession": """
        étudiant m, étudiante f | student
        médecin m | doctor
        professeur m | teacher
        avocat m, avocate f | lawyer
        boulanger m, boulangère f | baker
        infirmier m, infirmière f | nurse
        ingénieur m | engineer
        acteur m, actrice f | actor, actress
        chanteur m, chanteuse f | singer
        musicien m, musicienne f | musician
        peintre m | painter
        écrivain m | writer
        journaliste m | journalist
        policier m, policière f | police officer
        serveur m, serveuse f | waiter, waitress
        cuisinier m, cuisinière f | cook
        coiffeur m, coiffeuse f | hairdresser
        fermier m, fermière f | farmer
        soldat m, soldate f | soldier
        pilote m | pilot
        artiste m | artist
        dentiste m | dentist
        pharmacien m, pharmacienne f | pharmacist
        jardinier m, jardinière f | gardener
    """,
    "pet": """
        chat m | cat
        chien m | dog
        cheval m | horse
        vache f | cow
        mouton m | sheep (sheep)
        cochon m | pig
        poule f | hen
        lapin m | rabbit
    """,
    "wild": """
        oiseau m | bird
        lion m | lion
        tigre m | tiger
        éléphant m | elephant
        singe m | monkey
        loup m | wolf (wolves)
        renard m | fox
        girafe f | giraffe
    """,
    "fruit": """
        pomme f | apple
        poire f | pear
        orange f | orange
        banane f | banana
        fraise f | strawberry
        citron m | lemon
        tomate f | tomato
        carotte f | carrot
        oignon m | onion
        haricot m | bean
        pomme de terre f | potato
    """,
    "dish": """
        œuf m | egg
        gâteau m | cake
        sandwich m | sandwich
        crêpe f | pancake
        tarte f | pie
        pizza f | pizza
        salade f | salad
    """,
    "solid": """
        pain m | bread
        fromage m | cheese
        viande f | meat
        poulet m | chicken
        chocolat m | chocolate
        poisson m | fish
    """,
    "ingredient": """
        beurre m | butter
        riz m | rice
        miel m | honey
        sucre m | sugar
        huile f | oil
    """,
    "drink": """
        eau f | water
        lait m | milk
        café m | coffee
        thé m | tea
        vin m | wine
        bière f | beer
        limonade f | lemonade
    """,
    "book": """
        livre m | book
        roman m | novel
        journal m | newspaper
        magazine m | magazine
    """,
    "text": """
        lettre f | letter
        poème m | poem
        message m | message
        article m | article
        rapport m | report
    """,
    "speech": """
        histoire f | story
        mot m | word
        phrase f | sentence
        question f | question
        réponse f | answer
        leçon f | lesson
    """,
    "garment": """
        robe f | dress
        chemise f | shirt
        jupe f | skirt
        manteau m | coat
        veste f | jacket
        pull m | sweater
        écharpe f | scarf (scarves)
        uniforme m | uniform
    """,
    "accessory": """
        chapeau m | hat
        chaussure f | shoe
        gant m | glove
        ceinture f | belt
        bague f | ring
        montre f | watch
        lunettes fp | glasses
    """,
    "drivable": """
        voiture f | car
        camion m | truck
        camionnette f | van
        taxi m | taxi
    """,
    "vehicle": """
        vélo m | bicycle
        moto f | motorcycle
        bateau m | boat
        avion m | plane
        train m | train
    """,
    "furniture": """
        table f | table
        chaise f | chair
        lit m | bed
        canapé m | sofa
        armoire f | wardrobe
        étagère f | shelf (shelves)
        bureau m | desk
        miroir m | mirror
    """,
    "device": """
        lampe f | lamp
        radio f | radio
        télévision f | television
        ordinateur m | computer
        téléphone m | phone
    """,
    "object": """
        clé f | key
        parapluie m | umbrella
        stylo m | pen
        crayon m | pencil
        cahier m | notebook
        billet m | ticket
        cadeau m | gift
        ballon m | ball
        photo f | photo
        fleur f | flower
    """,
    "tableware": """
        couteau m | knife (knives)
        fourchette f | fork
        cuillère f | spoon
        assiette f | plate
        tasse f | cup
        verre m | glass
    """,
    "container": """
        boîte f | box
        valise f | suitcase
        sac m | bag
        tiroir m | drawer
        bouteille f | bottle
    """,
    "opening": """
        porte f | door
        fenêtre f | window
    """,
    "show": """
        film m | film
        match m | match
        spectacle m | show
    """,
    "sound": """
        chanson f | song
        concert m | concert
    """,
    "building": """
        école f | school
        hôpital m | hospital
        gare f | station
        restaurant m | restaurant
        hôtel m | hotel
        banque f | bank
        église f | church
        musée m | museum
        bibliothèque f | library
        magasin m | shop
        cinéma m | cinema
        aéroport m | airport
        pharmacie f | pharmacy
        université f | university
        château m | castle
        piscine f | swimming pool
    """,
    "venue": """
        marché m | market
        plage f | beach
        ferme f | farm
        zoo m | zoo
    """,
    "inside": """
        maison f | house
        appartement m | flat
        jardin m | garden
        cuisine f | kitchen
        chambre f | bedroom
        salon m | living room
        salle de bains f | bathroom
    """,
    "area": """
        rue f | street
        parc m | park
        forêt f | forest
        village m | village
        ville f | city
        champ m | field
    """,
    "landscape": """
        pont m | bridge
        montagne f | mountain
        rivière f | river
        lac m | lake
        arbre m | tree
    """,
}

# On every thing that has a painter or a dyer; the third column adds the animals.
COLOURS = """
    rouge | red
    bleu | blue
    vert | green
    jaune | yellow
    noir | black | pet
    blanc, blanche | white | pet
    gris | grey | pet
    rose | pink
"""

# Third column: where it stands. Fourth: the classes of the nouns. A comparative after the comma; "-": none.
ADJECTIVES = """
    petit | small, smaller | before | animal fruit garment transport furniture object tableware container places
    grand | big, bigger | before | garment transport furniture device container opening inside area landscape
    beau, belle, bel | beautiful | before | animal clothes transport furniture book sound places landscape
    vieux, vieille, vieil | old, older | before | friend pet goods book places
    nouveau, nouvelle, nouvel | new, newer | before | profession book goods building
    joli | pretty, prettier | before | pet clothes furniture object tableware sound inside area
    bon, bonne | good, - | before | profession food drink book show
    mauvais | bad, - | before | profession book show speech
    jeune | young, younger | before | person profession pet
    long, longue | long, longer | before | text speech garment show
    cher, chère | expensive | after | ingredient clothes transport furniture device tableware
    propre | clean, cleaner | after | garment tableware inside furniture
    sale | dirty, dirtier | after | garment drivable tableware inside
    lourd | heavy, heavier | after | furniture container
    confortable | comfortable | after | furniture garment drivable inside
    rapide | fast, faster | after | transport
    délicieux | delicious | after | food drink
    frais, fraîche | fresh, fresher | after | fruit solid
    chaud | hot, hotter | after | dish solid
    froid | cold, colder | after | dish drink
    intéressant | interesting | after | book text speech show building
    ennuyeux | boring | after | book text speech show
    difficile | difficult | after | text speech
    facile | easy, easier | after | speech text
    dangereux | dangerous | after | wild vehicle area landscape
    calme | quiet, quieter | after | area building inside
    vide | empty, - | after | container building inside
    célèbre | famous | after | building landscape book sound
"""

# Said of people with être; "with" in the third column: also beside the noun ("un homme riche").
PERSONAL = """
    content | pleased
    heureux | happy, happier
    triste | sad, sadder
    fatigué | tired
    malade | sick, sicker
    fâché | angry, angrier
    grand | tall, taller
    petit | small, smaller
    jeune | young, younger
    vieux, vieille | old, older
    riche | rich, richer | with
    pauvre | poor, poorer | with
    gentil, gentille | kind, kinder | with
    intelligent | intelligent | with
    timide | shy, shyer | with
    courageux | brave, braver | with
    paresseux | lazy, lazier | with
    sérieux | serious | with
    patient | patient | with
    célèbre | famous | with
    drôle | funny, funnier | with
    prêt | ready, -
    seul | alone, -
    occupé | busy, busier
    inquiet, inquiète | worried
    fort | strong, stronger
    honnête | honest | with
    marié | married, -
"""

NATIONALITIES = """
    français | French
    anglais | English
    allemand | German
    espagnol | Spanish
    italien | Italian
    belge | Belgian
    chinois | Chinese
    japonais | Japanese
    américain | American
"""
LANGUAGES = """
    français | French
    anglais | English
    allemand | German
    espagnol | Spanish
    italien | Italian
    chinois | Chinese
    japonais | Japanese
"""

# Third column: what the object can be. Fourth: what its pronoun stands for; "-": it takes none.
TRANSITIVES = """
    manger | eat, ate | food | thing
    cuisiner | cook | fruit solid | thing
    couper | cut, cut | fruit solid | thing
    préparer | prepare | dish | thing
    servir | serve | dish solid drink | thing
    boire | drink, drank | drink | thing
    commander | order | dish drink | thing
    acheter | buy, bought | food ingredient drink goods book | thing
    vendre | sell, sold | fruit dish ingredient garment transport furniture device pet | thing
    choisir | choose, chose | dish clothes drivable furniture object book | thing
    lire | read, read | book text | thing
    écrire | write, wrote | text speech | thing
    traduire | translate | book text speech | thing
    finir | finish | book text dish | thing
    comprendre | understand, understood | text speech | thing
    répéter | repeat | speech | thing
    expliquer | explain | speech text | thing
    oublier | forget, forgot | object accessory speech container | thing
    porter | wear, wore | clothes | thing
    mettre | put on, put on | clothes | -
    enlever | take off, took off | clothes | -
    laver | wash | garment drivable tableware | thing
    conduire | drive, drove | drivable | thing
    réparer | repair | transport furniture device opening | thing
    prendre | take, took | object container tableware vehicle | thing
    casser | break, broke | tableware device furniture opening | thing
    perdre | lose, lost | object accessory container | thing
    nettoyer | clean | furniture inside tableware | thing
    utiliser | use | device tableware | thing
    ouvrir | open | opening container | thing
    fermer | close | opening container | thing
    allumer | turn on | device | -
    éteindre | turn off | device | -
    apporter | bring, brought | dish ingredient drink object tableware book | thing
    envoyer | send, sent | book text object | thing
    recevoir | receive | book text object | thing
    visiter | visit | building venue area | thing
    quitter | leave, left | building inside venue | thing
    traverser | cross | area | thing
    construire | build, built | building furniture | thing
    dessiner | draw, drew | animal building landscape furniture | thing
    peindre | paint | opening furniture landscape inside | thing
    nourrir | feed, fed | animal | thing
    caresser | stroke | pet | thing
    regarder | watch | show | -
    regarder | look at | people wild object landscape | person
    écouter | listen to | people sound | person
    entendre | hear, heard | people animal sound | person
    voir | see, saw | people animal building landscape drivable | person
    chercher | look for | people pet object accessory building | person
    trouver | find, found | people object accessory container | person
    attendre | wait for | people | person
    aider | help | people | person
    inviter | invite | people | person
    appeler | call | people | person
    rencontrer | meet, met | people | person
    remercier | thank | people | person
    embrasser | kiss | people | person
"""

# No "I am going to know Marie": states stay in the present. The fourth column is as above, or "generic": le,
# la and les have no "the" in English ("j'aime les pommes", "I like apples"); or "own": one's own, or this one.
STATIVES = """
    connaître | know, knew | people | person
    admirer | admire | people | person
    aimer | love | people | person
    aimer | love | pet | own
    aimer | like | food ingredient drink wild show sound | generic
    préférer | prefer, preferred | food drink garment vehicle show sound | generic
    détester | hate | food drink wild show sound | generic
    vouloir | want | food ingredient drink object tableware garment device | thing
    avoir | have, had | food ingredient drink pet goods tableware container book friend inside | thing
"""

DITRANSITIVES = """
    donner | give, gave
    montrer | show
    offrir | offer
    prêter | lend, lent
    apporter | bring, brought
    envoyer | send, sent
"""

# Verbs whose person stands after a preposition, in French and maybe in English.
COMMUNICATION = """
    parler à | speak, spoke | to
    téléphoner à | call |
    répondre à | answer |
    sourire à | smile | at
    penser à | think, thought | about
    jouer avec | play | with
    danser avec | dance | with
    travailler avec | work | with
    voyager avec | travel, travelled | with
"""

# Third column: where one does it; anywhere, if nothing stands there.
INTRANSITIVES = """
    dormir | sleep, slept
    travailler | work
    courir | run, ran | outdoors
    nager | swim, swam | water
    danser | dance
    chanter | sing, sang
    marcher | walk | outdoors
    pleurer | cry
    rire | laugh
    voyager | travel, travelled | abroad
    jouer | play
    étudier | study
    manger | eat, ate
    boire | drink, drank
    lire | read, read
"""

# Third column: how "à" reads after it, to a place; the past takes être.
MOTIONS = """
    aller | go, went | to
    venir | come, came | to
    retourner | return | to
    arriver | arrive | at
    rester | stay | at
    tomber | fall, fell | -
    partir | leave, left | -
    sortir | go out, went out | -
    rentrer | go home, went home | -
"""

REFLEXIVES = """
    lever | get up, got up
    coucher | go to bed, went to bed
    réveiller | wake up, woke up
    habiller | get dressed, got dressed
    laver | wash
    dépêcher | hurry
    reposer | rest
    promener | take a walk, took a walk
"""

# Verbs before an infinitive; "past": also in the past; "skill": only before what one can learn.
CATENATIVES = """
    vouloir | want to
    aimer | like to
    détester | hate to
    espérer | hope to
    savoir | know how to, knew how to | skill
    essayer de | try to | past
    refuser de | refuse to | past
    oublier de | forget to, forgot to | past
    décider de | decide to | past
    commencer à | start to | past
    apprendre à | learn to | skill
"""

OPINIONS = """
    penser | think, thought
    croire | believe
    savoir | know, knew
    dire | say, said
    espérer | hope
"""

# jouer de + instrument: "play the piano"; jouer à + game: "play football".
INSTRUMENTS = """
    piano m | piano
    guitare f | guitar
    violon m | violin
    trompette f | trumpet
    accordéon m | accordion
"""
GAMES = """
    football m | football
    tennis m | tennis
    golf m | golf
    cartes fp | cards
    échecs mp | chess
"""
STUDIES = """
    chimie f | chemistry
    physique f | physics
    musique f | music
    droit m | law
    médecine f | medicine
    mathématiques fp | mathematics
"""

# avoir + noun is be + adjective.
IDIOMS = """
    faim | hungry
    soif | thirsty
    froid | cold
    chaud | hot
    sommeil | sleepy
    peur | afraid
    raison | right
    tort | wrong
"""
BODY_PARTS = """
    tête f | head
    dos m | back
    bras m | arm
    jambe f | leg
    ventre m | stomach
    main f | hand
    pied m | foot
    oreille f | ear
    yeux mp | eyes
    dents fp | teeth
"""

# Third column: what it holds. Fourth: what one does with it.
PORTIONS = """
    kilo m | kilo | fruit ingredient | acheter vendre apporter
    morceau m | piece | solid | manger couper
    tasse f | cup | café thé | boire commander préparer
    verre m | glass | eau lait vin bière limonade | boire commander servir
    bouteille f | bottle | eau lait vin bière limonade | acheter commander apporter
"""

NAMES = """
    Marie f | Marie
    Sophie f | Sophie
    Alice f | Alice
    Julie f | Julie
    Claire f | Claire
    Emma f | Emma
    Paul m | Paul
    Pierre m | Pierre
    Marc m | Marc
    Julien m | Julien
    Antoine m | Antoine
    Simon m | Simon
"""
CITIES = """
    Paris | Paris
    Lyon | Lyon
    Bordeaux | Bordeaux
    Londres | London
    Rome | Rome
    Berlin | Berlin
    Lisbonne | Lisbon
    Vienne | Vienna
    Venise | Venice
    Bruxelles | Brussels
"""
COUNTRIES = """
    en France | France
    en Italie | Italy
    en Espagne | Spain
    en Allemagne | Germany
    en Angleterre | England
    en Belgique | Belgium
    en Chine | China
    au Canada | Canada
    au Japon | Japan
    au Portugal | Portugal
"""
TRANSPORT = """
    en train | by train
    en voiture | by car
    en avion | by plane
    en bateau | by boat
    en taxi | by taxi
    à vélo | by bicycle
    à pied | on foot
"""

NUMBERS = """
    deux | two
    trois | three
    quatre | four
    cinq | five
    six | six
    sept | seven
    huit | eight
    neuf | nine
    dix | ten
    onze | eleven
    douze | twelve
    treize | thirteen
    quatorze | fourteen
    quinze | fifteen
    seize | sixteen
    dix-sept | seventeen
    dix-huit | eighteen
    dix-neuf | nineteen
    vingt | twenty
"""
AMOUNTS = """
    quelques | a few
    plusieurs | several
    beaucoup de | a lot of
    trop de | too many
    assez de | enough
"""
MASS_AMOUNTS = """
    beaucoup de | a lot of
    trop de | too much
    assez de | enough
    un peu de | a little
"""
# Whose it is; the possessive in the masculine, in the feminine, and both before a vowel; in the plural.
OWNERS = """
    je | mon, ma, mon, mon | mes | my
    tu | ton, ta, ton, ton | tes | your
    il | son, sa, son, son | ses | his
    elle | son, sa, son, son | ses | her
    nous | notre | nos | our
    vous | votre | vos | your
    ils | leur | leurs | their
"""
AGE_NUMBERS = """
    vingt-cinq | twenty-five
    trente | thirty
    trente-cinq | thirty-five
    quarante | forty
    quarante-cinq | forty-five
    cinquante | fifty
    soixante | sixty
    soixante-dix | seventy
    quatre-vingts | eighty
    quatre-vingt-dix | ninety
"""

STRONG_PRONOUNS = """
    moi | me
    toi | you
    lui | him
    elle | her
    nous | us
    vous | you
    eux | them
"""

DAYS = """
    lundi | Monday
    mardi | Tuesday
    mercredi | Wednesday
    jeudi | Thursday
    vendredi | Friday
    samedi | Saturday
    dimanche | Sunday
"""

# "next/prochaine" is linked to that French word; without marks the words are linked one by one.
TIMES = {
    "habit": """
        chaque jour | every day
        chaque matin | every morning
        chaque semaine | every week
        le matin | in/le the/le morning/matin
        le soir | in/le the/le evening/soir
        l'après-midi | in/l'après-midi the/l'après-midi afternoon/l'après-midi
        la nuit | at/la night/nuit
        à midi | at noon
        à minuit | at midnight
        en été | in summer
        en automne | in autumn
        en hiver | in winter
        au printemps | in spring
    """,
    "past": """
        hier | yesterday
        hier soir | last/hier night/soir
        ce matin | this morning
        la semaine dernière | last/dernière week/la/semaine
        le mois dernier | last/dernier month/le/mois
        l'année dernière | last/dernière year/l'année
    """,
    "future": """
        demain | tomorrow
        demain matin | tomorrow morning
        ce soir | tonight/ce/soir
        bientôt | soon
        la semaine prochaine | next/prochaine week/la/semaine
        le mois prochain | next/prochain month/le/mois
        l'année prochaine | next/prochaine year/l'année
    """,
    "now": """
        aujourd'hui | today
        maintenant | now
        ce matin | this morning
    """,
}

FREQUENCIES = """
    souvent | often
    toujours | always
    parfois | sometimes
    rarement | rarely
"""
# Third column: "inner" stands before a participle ("elle a bien dormi"), "last" after it; so does "pace", which
# only goes with actions that can be fast or slow.
MANNERS = """
    bien | well | inner
    mal | badly | inner
    beaucoup | a lot | inner
    trop | too much_ADV | inner
    vite | fast | pace
    lentement | slowly | pace
    ici | here | last
    dehors | outside | last
"""
INTENSIFIERS = """
    très | very
    trop | too
    assez | quite
    vraiment | really
"""

# Third column: which times go with it.
WEATHER = """
    il fait beau | the/il weather/il is/fait nice/beau | now
    il fait mauvais | the/il weather/il is/fait bad/mauvais | now
    il fait froid | it is cold | now
    il fait chaud | it is hot | now
    il ne fait pas froid | it/il is/fait not/ne/pas cold/froid | now | denied
    il ne fait pas chaud | it/il is/fait not/ne/pas hot/chaud | now | denied
    il pleut | it/il is/pleut raining/pleut | now
    il neige | it/il is/neige snowing/neige | now
    il ne pleut pas | it/il is/pleut not/ne/pas raining/pleut | now | denied
    il ne neige pas | it/il is/neige not/ne/pas snowing/neige | now | denied
    il faisait beau | the/il weather/il was/faisait nice/beau | past
    il faisait mauvais | the/il weather/il was/faisait bad/mauvais | past
    il faisait froid | it was cold | past
    il faisait chaud | it was hot | past
    il a plu | it/il rained/a/plu | past
    il a neigé | it/il snowed/a/neigé | past
    il fera beau | the/il weather/il will/fera be/fera nice/beau | future
    il fera mauvais | the/il weather/il will/fera be/fera bad/mauvais | future
    il fera froid | it/il will/fera be/fera cold/froid | future
    il fera chaud | it/il will/fera be/fera hot/chaud | future
    il va pleuvoir | it/il is/va going/va to_PART/pleuvoir rain/pleuvoir | future
    il va neiger | it/il is/va going/va to_PART/neiger snow/neiger | future
"""

GREETINGS = """
    bonjour | hello
    bonsoir | good evening
    au revoir | goodbye
    merci | thank you
    bonne nuit | good night
    à demain | see you tomorrow
"""

# Six persons of the present, then the participle. "prendre com-": comprendre has the same forms.
IRREGULAR_VERBS = """
    être | suis es est sommes êtes sont été
    avoir | ai as a avons avez ont eu
    aller | vais vas va allons allez vont allé
    venir de- | viens viens vient venons venez viennent venu
    voir | vois vois voit voyons voyez voient vu
    boire | bois bois boit buvons buvez boivent bu
    croire | crois crois croit croyons croyez croient cru
    lire | lis lis lit lisons lisez lisent lu
    dire | dis dis dit disons dites disent dit
    rire sou- | ris ris rit rions riez rient ri
    écrire | écris écris écrit écrivons écrivez écrivent écrit
    prendre com- ap- | prends prends prend prenons prenez prennent pris
    mettre | mets mets met mettons mettez mettent mis
    uire cond- trad- constr- | uis uis uit uisons uisez uisent uit
    eindre p- ét- | eins eins eint eignons eignez eignent eint
    connaître | connais connais connaît connaissons connaissez connaissent connu
    vouloir | veux veux veut voulons voulez veulent voulu
    pouvoir | peux peux peut pouvons pouvez peuvent pu
    devoir | dois dois doit devons devez doivent dû
    savoir | sais sais sait savons savez savent su
    recevoir | reçois reçois reçoit recevons recevez reçoivent reçu
    partir | pars pars part partons partez partent parti
    sortir | sors sors sort sortons sortez sortent sorti
    dormir | dors dors dort dormons dormez dorment dormi
    servir | sers sers sert servons servez servent servi
    courir | cours cours court courons courez courent couru
    ouvrir | ouvre ouvres ouvre ouvrons ouvrez ouvrent ouvert
    offrir | offre offres offre offrons offrez offrent offert
"""
