// @ts-check
// Draws the document that the page names, with what the server has for it: Redoc's bundle, or plain.js in its place.
//
// Calls and channels are shown in groups, by the beginning of a call's path or of a channel's name.

import * as viewer from "./redoc.standalone.js";

const OPTIONS = {disableTelemetry: true, scrollYOffset: ".bar", jsonSamplesExpandLevel: 3, sortRequiredPropsFirst: true};
const CALLS = [
  ["Jobs", /^\/v1\/(jobs|whatif|queue|history|starts)\b/],
  ["Leases", /^\/v1\/leases\b/],
  ["Departments and instances", /^\/v1\/(departments|instances|signals|lending)\b/],
  ["Hosts and storage", /^\/v1\/(hosts|store)\b/],
  ["Events and reasons", /^\/v1\/(events|why|story|record)\b/],
  ["Usage and audit", /^\/v1\/(usage|billable|prices|audit|overview|summary)\b/],
  ["The page", /^\/v1\/(session|picture|timeline|stream)\b/],
  ["Calls of VMs", /^\/v1\/guest\//],
  ["Others", /^/],
];
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

function group(groups, name) {
  return groups.find(([, begins]) => begins.test(name))[0];
}

function grouped(api) {
  for (const [path, calls] of Object.entries(api.paths ?? {})) {
    for (const call of Object.values(calls)) call.tags = [group(CALLS, path)];
  }
  for (const [name, channel] of Object.entries(api.channels ?? {})) channel.tags = [{name: group(CHANNELS, name)}];
  const tags = (api.paths ? CALLS : CHANNELS).map(([name]) => ({name}));
  return api.paths ? {...api, tags} : {...api, info: {...api.info, tags}};
}

try {
  viewer.init(grouped(await documentOf(place.dataset.document)), OPTIONS, place);
  document.getElementById("licence").hidden = viewer.isPlain === true;
} catch (error) {
  place.textContent = `The reference cannot be shown: ${error.message}`;
}
