// What is known of a picture besides its text.

import { el, svg, table, terms } from "./dom.js";
import { count, writeNumber, writeShare } from "./words.js";

/** Measures, stages and versions of a result. */
export function showFacts(result) {
  const { image, quality, geometry, visual } = result;
  return el(
    "div",
    { class: "details" },
    image.warnings.length > 0 && el("p", { class: "why" }, `Warnings: ${image.warnings.join(", ")}`),
    terms([
      ["Format", `${image.format.toUpperCase()}, ${image.width} × ${image.height}, ${count(image.frames, "frame")}`],
      ["Languages", result.languages?.join(", ")],
      ["Confidence", result.confidence === null ? null : writeShare(result.confidence)],
      ["Turned", geometry && `${geometry.rotation_deg}°, skew ${geometry.skew_deg.toFixed(1)}°`],
      ["Sharpness", quality && writeNumber(quality.sharpness)],
      ["Contrast", quality && writeShare(quality.contrast)],
      ["Text height", quality?.text_height_px && `${writeNumber(quality.text_height_px)} px`],
      ["Ground", quality?.polarity],
      ["Colours", visual && showPalette(visual.palette)],
      ["Perceptual hash", visual && el("code", {}, visual.phash)],
      ["SHA-256", el("code", {}, image.sha256)],
      ["Model", el("code", {}, result.model_version)],
      ["Pipeline", el("code", {}, result.pipeline_version)],
    ]),
    table(
      "Stages",
      ["Stage", "Status", "ms", "Why"],
      result.stages.map(({ name, status, ms, cached, reason }) => [
        name,
        status,
        cached ? "cached" : writeNumber(Math.round(ms)),
        reason ?? "",
      ]),
    ),
  );
}

function showPalette(palette) {
  return palette.map(({ rgb, share }) =>
    el(
      "span",
      { class: "swatch" },
      svg("svg", { viewBox: "0 0 1 1", "aria-hidden": true }, svg("rect", { width: 1, height: 1, fill: rgb })),
      `${rgb} ${writeShare(share)}`,
    ),
  );
}
