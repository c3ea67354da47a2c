// @ts-check
// Draws the document that the page names, with what the server has for it: Redoc's bundle, or plain.js in its place.
//
// Calls are shown in the groups of their document, channels by the beginning of their names.

import * as viewer from "./redoc.standalone.js";

const OPTIONS = {disableTelemetry: true, scrollYOffset: ".bar", jsonSamplesExpandLevel: 3, sortRequiredPropsFirst: true};
const CHANNELS = [
  ["Requests", /^request\./],
  ["Answers to requests", /^reply\./],
  ["Signals", /^signal\./],
  ["Events", /^event\./],
  ["Queries", /^query\./],
  ["Others", /^/],
];
const place = document.querySelector("redoc");

async function documentOf(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: HTTP ${answer.status}`);
  return answer.json();
}

function group(name) {
  return CHANNELS.find(([, begins]) => begins.test(name))[0];
}

function grouped(api) {
  if (api.paths) return api;
  for (const [name, channel] of Object.entries(api.channels)) channel.tags = [{name: group(name)}];
  return {...api, info: {...api.info, tags: CHANNELS.map(([name]) => ({name}))}};
}

try {
  viewer.init(grouped(await documentOf(place.dataset.document)), OPTIONS, place);
  document.getElementById("licence").hidden = viewer.isPlain === true;
} catch (error) {
  place.textContent = `The reference cannot be shown: ${error.message}`;
}
