// The tool of the SDK scripts, as careful as an application is: an unknown name or unfit arguments end the program.
import { readFileSync } from "node:fs";

export const { BASE_URL, MODEL, PROMPT, SDK_WIRE } = process.env;
export const schema = {
  type: "object",
  properties: { path: { type: "string" } },
  required: ["path"],
  additionalProperties: false,
};
export const description = "Read a file.";

export function carryOut(name, text) {
  if (name !== "read_file") throw new Error(`unknown tool ${name}`);
  const given = JSON.parse(text);
  if (Object.keys(given).join() !== "path" || typeof given.path !== "string") throw new Error(`unfit arguments ${text}`);
  return readFileSync(given.path, "utf8");
}

export function tell(answer, inputTokens) {
  console.log(answer);
  console.log(JSON.stringify({ input_tokens: inputTokens }));
}
