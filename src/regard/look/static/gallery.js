// Sorts the mistakes.

const list = document.querySelector("main"), buttons = document.querySelectorAll("button");
for (const button of buttons) {
  button.addEventListener("click", () => {
    const by = button.dataset.by;
    list.append(...[...list.children].sort((a, b) => b.dataset[by] - a.dataset[by]));
    for (const each of buttons) each.setAttribute("aria-pressed", each === button);
  });
}
