// @ts-check
// Stands in for Redoc's bundle where the installation lacks it: every operation with its summary, as a table.

const METHODS = ["get", "put", "post", "delete", "patch", "head", "options"];
const ACTIONS = {receive: "publish", send: "subscribe"}; // of the application; the reader is at the other end

export const isPlain = true;

function element(name, text = "", children = []) {
  const made = document.createElement(name);
  made.append(...(text ? [text] : children));
  return made;
}

function calls(api) {
  return Object.entries(api.paths).flatMap(([path, of]) =>
    METHODS.filter((method) => of[method]).map((method) => [method.toUpperCase(), path, of[method].summary]));
}

function subjects(api) {
  return Object.values(api.operations).map((one) => {
    const channel = api.channels[one.channel.$ref.split("/").pop()];
    return [ACTIONS[one.action], channel.address ?? "", one.summary];
  });
}

function row([what, where, summary]) {
  return element("tr", "", [element("td", what), element("td", "", [element("code", where)]), element("td", summary)]);
}

export function init(api, _options, place) {
  const missing = "The renderer is not installed, so this page has no fields and examples: the document has them. " +
    "In a checkout, make setup brings it.";
  const rows = (api.paths ? calls(api) : subjects(api)).map(row);
  place.replaceChildren(element("main", "", [
    element("h1", api.info.title), element("p", api.info.description), element("p", missing),
    element("table", "", [element("tbody", "", rows)]),
  ]));
}
