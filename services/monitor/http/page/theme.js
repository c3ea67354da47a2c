// @ts-check
// Light, dark, or as the system has it: the button goes round the three, and the choice is kept in this browser.
// early.js has set it before the first paint; palette.css does the rest through `color-scheme`.

const ROUND = ["system", "light", "dark"];
const SIGN = { system: "◐", light: "☀", dark: "☾" };
const KEY = "phoenix-theme";

/** @param {HTMLElement} button */
export function theme(button) {
  const root = document.documentElement;
  const show = () => {
    const now = root.dataset.theme ?? "system";
    button.textContent = SIGN[now];
    const words = now === "system" ? "as the system" : now;
    button.setAttribute("aria-label", `Colours: ${words}`);
    button.title = `Colours: ${words}`;
  };
  button.addEventListener("click", () => {
    const next = ROUND[(ROUND.indexOf(root.dataset.theme ?? "system") + 1) % ROUND.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    remember(next);
    show();
  });
  show();
}

/** @param {string} chosen */
function remember(chosen) {
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // storage is refused: the choice lasts as long as the page
  }
}
