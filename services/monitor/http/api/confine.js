// @ts-check
// Keeps Redoc within the page's policy, in which its bundle runs unchanged: what the policy would refuse is not tried.
//
//   1. No style is written into the document. The bundle's style elements are style sheets that a script has constructed,
//      which the policy leaves to scripts of this page.
//      Colours in the markup of examples are set by this script.
//   2. A font inside a rule (data:) is left out, and the page's own font is shown.
//   3. An image of another host gets no address: nothing is asked of its maker's servers.
//   4. There are no workers, for which text would be compiled to code. Redoc then searches in the page itself.
//   5. It sets no cookie, which the browser would send to all ports of this host.

const FONT = /src:\s*url\(\s*['"]?data:[^)]*\)[^;}]*;?/g;
const COLOUR = / style="color: var\((--[\w-]+)\)"/g;
const create = document.createElement;
const markup = Object.getOwnPropertyDescriptor(Element.prototype, "innerHTML");
const setAttribute = Element.prototype.setAttribute;

function constructed() {
  const sheet = new CSSStyleSheet();
  const insert = sheet.insertRule;
  sheet.insertRule = (rule, index) => insert.call(sheet, rule.replace(FONT, ""), index);
  document.adoptedStyleSheets.push(sheet);
  return sheet;
}

function ofThisHost(address) {
  return new URL(address, document.baseURI).origin === location.origin;
}

document.createElement = function (name, options) {
  const kind = String(name).toLowerCase();
  const made = create.call(document, kind === "style" ? "meta" : name, options);
  if (kind === "style") Object.defineProperty(made, "sheet", {value: constructed()});
  if (kind === "img") {
    made.setAttribute = (key, value) => {
      if (key !== "src" || ofThisHost(value)) setAttribute.call(made, key, value);
    };
    Object.defineProperty(made, "src", {
      get: () => made.getAttribute("src") ?? "", set: (value) => made.setAttribute("src", value),
    });
  }
  return made;
};
Object.defineProperty(Element.prototype, "innerHTML", {
  ...markup,
  set(text) {
    markup.set.call(this, String(text).replace(COLOUR, ' data-colour="$1"'));
    for (const one of this.querySelectorAll("[data-colour]")) one.style.color = `var(${one.dataset.colour})`;
  },
});
delete window.Worker;
Object.defineProperty(document, "cookie", {get: () => "", set: () => {}});
