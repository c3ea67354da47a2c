// Light or dark, before anything is painted: a classic script in the head, so that no wrong colour flashes. The rest: theme.js.
"use strict";
try {
  const chosen = localStorage.getItem("phoenix-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is refused to this page: it follows the system
}
