"""Names and codes of languages, to recognise a file's ending or a table's header."""

__all__ = ["language"]

# Code, three-letter codes, English name, own name. Not every language: enough for the headers that people write.
TABLE = """
af afr Afrikaans; am amh Amharic; ar ara Arabic; az aze Azerbaijani; be bel Belarusian; bg bul Bulgarian; bn ben
Bengali Bangla; bs bos Bosnian; ca cat Catalan Català; cs ces cze Czech Čeština; cy cym wel Welsh Cymraeg; da dan
Danish Dansk; de deu ger German Deutsch; el ell gre Greek; en eng English; eo epo Esperanto; es spa Spanish Español;
et est Estonian Eesti; eu eus baq Basque Euskara; fa fas per Persian Farsi; fi fin Finnish Suomi; fr fra fre French
Français; ga gle Irish Gaeilge; gl glg Galician Galego; gu guj Gujarati; ha hau Hausa; he heb Hebrew; hi hin Hindi;
hr hrv Croatian Hrvatski; hu hun Hungarian Magyar; hy hye arm Armenian; id ind Indonesian; ig ibo Igbo; is isl ice
Icelandic Íslenska; it ita Italian Italiano; ja jpn Japanese; ka kat geo Georgian; kk kaz Kazakh; km khm Khmer; kn kan
Kannada; ko kor Korean; ky kir Kyrgyz; la lat Latin; lb ltz Luxembourgish; lo lao Lao; lt lit Lithuanian; lv lav
Latvian; mk mkd mac Macedonian; ml mal Malayalam; mn mon Mongolian; mr mar Marathi; ms msa may Malay; mt mlt Maltese;
my mya bur Burmese; ne nep Nepali; nl nld dut Dutch Nederlands; no nor nb nob nn nno Norwegian Norsk; or ori Odia; pa
pan Punjabi; pl pol Polish Polski; ps pus Pashto; pt por Portuguese Português; ro ron rum Romanian Română; ru rus
Russian; si sin Sinhala; sk slk slo Slovak; sl slv Slovenian Slovene; so som Somali; sq sqi alb Albanian Shqip; sr srp
Serbian; sv swe Swedish Svenska; sw swa Swahili; ta tam Tamil; te tel Telugu; tg tgk Tajik; th tha Thai; tk tuk
Turkmen; tl tgl Tagalog Filipino; tr tur Turkish Türkçe; uk ukr Ukrainian; ur urd Urdu; uz uzb Uzbek; vi vie
Vietnamese; xh xho Xhosa; yi yid Yiddish; yo yor Yoruba; zh zho chi Chinese; zu zul Zulu
"""
CODES = {name.casefold(): row.split()[0] for row in TABLE.split(";") for name in row.split()}


def language(name: str) -> str | None:
    """The code of the language that a code or a name means, if it is a known one.

    >>> language("en"), language("Français"), language("Klingon")
    ('en', 'fr', None)
    """
    return CODES.get(name.strip().casefold())
