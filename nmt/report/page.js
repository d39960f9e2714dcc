"use strict";

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});

// The figures of a chart at the pointer, in its caption.
for (const chart of document.querySelectorAll(".chart")) {
  const reading = JSON.parse(chart.dataset.reading);
  const picture = chart.querySelector(".picture");
  const pointer = chart.querySelector(".pointer");
  const values = chart.querySelectorAll(".key b");
  const [first, last] = reading.ends;
  const nearest = (at, wanted) => at.reduce((best, x, i) => (Math.abs(x - wanted) < Math.abs(at[best] - wanted) ? i : best), 0);

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const wanted = first + ((share - reading.left) / reading.width) * (last - first);
    const places = reading.points.map(([at]) => at[nearest(at, wanted)]);
    const here = places.reduce((best, x) => (Math.abs(x - wanted) < Math.abs(best - wanted) ? x : best));
    pointer.style.display = "block";
    pointer.style.left = `${100 * (reading.left + ((here - first) / (last - first)) * reading.width)}%`;
    chart.querySelector(".at").textContent = reading.labels ? reading.labels[here] : `update ${here.toLocaleString("en")}`;
    reading.points.forEach(([at, heights], i) => {
      const isThere = at[0] <= here && here <= at[at.length - 1];
      values[i].textContent = isThere ? heights[nearest(at, here)].toLocaleString("en", { maximumSignificantDigits: 4 }) : "–";
    });
  });
  picture.addEventListener("pointerleave", () => {
    pointer.style.display = "none";
    chart.querySelector(".at").textContent = "";
    values.forEach((value) => (value.textContent = ""));
  });
}

// The attention between the pieces of a sentence: of the one pointed at, to all on the other side.
for (const sentence of document.querySelectorAll(".sentence")) {
  const sources = [...sentence.querySelectorAll(".source .pieces")];
  const targets = [...sentence.querySelectorAll(".target .pieces[data-weights]")];

  const clear = () => {
    for (const piece of sentence.querySelectorAll(".held, .seen")) piece.classList.remove("held", "seen");
  };
  const tint = (pieces, weights) => {
    const most = Math.max(...weights, 1);
    weights.forEach((weight, i) => {
      pieces[i].style.setProperty("--share", Math.round((80 * weight) / most));
      pieces[i].classList.add("seen");
    });
  };
  sentence.addEventListener("pointerover", (event) => {
    clear();
    const piece = event.target.closest(".pieces > span");
    if (!piece) return;
    const place = [...piece.parentElement.children].indexOf(piece);
    for (const target of targets) {
      const source = sources[target.dataset.source];
      const weights = JSON.parse(target.dataset.weights);
      if (piece.parentElement === target) tint(source.children, weights[place]);
      else if (piece.parentElement === source) tint(target.children, weights.map((row) => row[place]));
      else continue;
      piece.classList.add("held");
    }
  });
  sentence.addEventListener("pointerleave", clear);
}
