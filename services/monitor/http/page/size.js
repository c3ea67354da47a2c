// @ts-check
// The dimensions of a size as `schemas/dimensions.py` has them (`test_page_sources.py` compares the two), and what is in use
// of each on a host.

export const DIMENSIONS = [
  { field: "cores", used: "cores_used", name: "cores", plural: "cores", unit: "" },
  { field: "memory_mb", used: "memory_used_mb", name: "memory", plural: "MiB", unit: "MiB" },
  { field: "gpus", used: "gpus_used", name: "GPUs", plural: "GPUs", unit: "" },
];

/** @typedef {typeof DIMENSIONS[number]} Dimension */

/** Those that the host has any of. @param {any} row @returns {Dimension[]} */
export function dimensionsOf(row) {
  return DIMENSIONS.filter((each) => row[each.field] > 0);
}

/** `2 of 8`. @param {any} row @param {Dimension} each */
function inUse(row, each) {
  return `${row[each.used] ?? 0} of ${row[each.field]}`;
}

/** `2 of 8 cores`, for each. @param {any} row @returns {string[]} */
export function amounts(row) {
  return dimensionsOf(row).map((each) => `${inUse(row, each)} ${each.plural}`);
}

/** Names, and `2 of 8 in use`, for each. @param {any} row @returns {string[][]} */
export function named(row) {
  return dimensionsOf(row).map((each) => [
    each.name[0].toUpperCase() + each.name.slice(1),
    `${inUse(row, each)}${each.unit && " "}${each.unit} in use`,
  ]);
}
