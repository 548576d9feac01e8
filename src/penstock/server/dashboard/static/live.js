// An open page is sent as it stands now, and what has changed is put in. What somebody types, ticks or has open stays.
"use strict";
(() => {
  const main = document.querySelector("main[data-live]");
  const state = document.querySelector("[data-live-state]");
  let source = null;

  function say(word, text) {
    if (!state) return;
    state.hidden = false;
    state.className = `live ${word}`;
    state.textContent = text;
  }

  const KEPT = new Set(["INPUT", "TEXTAREA", "SELECT", "DIALOG"]);
  // What somebody ticks must not move away under the pointer.
  const isTicked = (node) => node.matches("form[data-ticks]") && node.querySelector('input[name="id"]:checked') !== null;
  const morphing = {
    morphStyle: "innerHTML",
    callbacks: {
      beforeNodeMorphed: (old) => !(old.nodeType === 1 && (KEPT.has(old.tagName) || "kept" in old.dataset || isTicked(old))),
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
    },
  };

  function show(html) {
    Idiomorph.morph(main, html, morphing);
    // A form that has just come does not know the word of this browser.
    for (const input of main.querySelectorAll('input[name="csrf"]')) input.value = document.body.dataset.csrf;
    count();
  }

  function open() {
    if (!main || source || document.hidden) return;
    source = new EventSource(main.dataset.live);
    source.addEventListener("open", () => say("on", "live"));
    source.addEventListener("page", (event) => show(event.data));
    source.addEventListener("error", () => {
      say("off", "not live");
      if (source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(open, 5000);
      }
    });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  // How many rows are ticked, and all of them at once.
  function count() {
    for (const form of document.querySelectorAll("form[data-ticks]")) {
      const boxes = [...form.querySelectorAll('input[type="checkbox"][name="id"]')];
      const ticked = boxes.filter((box) => box.checked).length;
      for (const told of form.querySelectorAll("[data-ticked]")) told.textContent = ticked;
      for (const button of form.querySelectorAll("button[data-needs-ticks]")) button.disabled = ticked === 0;
      for (const note of form.querySelectorAll("[data-when-ticked]")) note.hidden = ticked === 0;
      const all = form.querySelector("input[data-tick-all]");
      if (all) {
        all.hidden = false;
        all.checked = ticked > 0 && ticked === boxes.length;
      }
    }
  }

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-ticks]");
    if (!form) return;
    if ("tickAll" in event.target.dataset) {
      for (const box of form.querySelectorAll('input[type="checkbox"][name="id"]')) box.checked = event.target.checked;
    }
    count();
  });
  // A form is sent once, however often its button is clicked until the answer comes.
  const sent = new WeakMap();
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (Date.now() - (sent.get(event.target) || 0) < 30000) event.preventDefault();
    else sent.set(event.target, Date.now());
  });
  // Times are typed as this machine's clock tells them.
  for (const input of document.querySelectorAll("input[data-zone]")) {
    input.value = Intl.DateTimeFormat().resolvedOptions().timeZone || input.value;
  }
  // On a phone the places are wider than the screen: the one where one is comes into sight.
  const place = document.querySelector(".bar-top nav a[aria-current]");
  if (place) place.parentElement.scrollLeft = place.offsetLeft - (place.parentElement.clientWidth - place.offsetWidth) / 2;
  // A tab that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", () => {
    for (const form of document.forms) sent.delete(form);
    open();
  });
  count();
  open();
})();
