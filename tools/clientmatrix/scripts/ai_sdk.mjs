// The two-step task with AI SDK's streamText, which carries tools out by itself.
import { stepCountIs, streamText, tool } from "ai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";
import { BASE_URL, MODEL, PROMPT, SDK_WIRE, carryOut, description, tell } from "./tool.mjs";

const apiKey = "local";
const models = {
  chat: () => createOpenAICompatible({ name: "local", baseURL: BASE_URL, apiKey, includeUsage: true })(MODEL),
  responses: () => createOpenAI({ baseURL: BASE_URL, apiKey }).responses(MODEL),
  messages: () => createAnthropic({ baseURL: BASE_URL, apiKey })(MODEL),
};
const result = streamText({
  model: models[SDK_WIRE](),
  prompt: PROMPT,
  tools: {
    read_file: tool({
      description,
      inputSchema: z.strictObject({ path: z.string() }),
      execute: async (input) => carryOut("read_file", JSON.stringify(input)),
    }),
  },
  stopWhen: stepCountIs(4),
  onError: ({ error }) => {
    console.error(error);
    process.exitCode = 1;
  },
});
let text = "";
for await (const part of result.textStream) text += part;
tell(text, (await result.totalUsage).inputTokens);
