"use strict";
{
  const form = document.querySelector("#filter");
  const told = document.querySelector("#filter-told");
  const questions = [...document.querySelectorAll(".question")];
  const cells = [...document.querySelectorAll(".cell")];

  const fits = (data, wanted) =>
    ["benchmark", "system", "backbone", "category"].every(
      (name) => !wanted.get(name) || wanted.get(name) === data[name],
    ) &&
    (!wanted.get("kind") || data.kinds.split(" ").includes(wanted.get("kind")));

  const apply = () => {
    const wanted = new FormData(form);
    let count = 0;
    for (const question of questions) {
      question.hidden = !fits(question.dataset, wanted);
      count += question.hidden ? 0 : 1;
    }
    for (const cell of cells) {
      cell.hidden = !cell.querySelector(".question:not([hidden])");
    }
    told.textContent = `${count} of ${questions.length} questions on this page`;
  };

  if (form) {
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    apply();
  }

  // A link to something folded unfolds it.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
}
