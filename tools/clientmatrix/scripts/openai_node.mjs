// The two-step task with openai-node's streaming helpers.
import OpenAI from "openai";
import { BASE_URL, MODEL, PROMPT, SDK_WIRE, carryOut, description, schema, tell } from "./tool.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "local" });

async function chat() {
  const messages = [{ role: "user", content: PROMPT }];
  const tools = [{ type: "function", function: { name: "read_file", description, parameters: schema, strict: true } }];
  let tokens = 0;
  for (let step = 0; step < 4; step++) {
    const stream = client.chat.completions.stream({
      model: MODEL, messages, tools, stream_options: { include_usage: true },
    });
    const completion = await stream.finalChatCompletion();
    tokens += completion.usage?.prompt_tokens ?? 0;
    const message = completion.choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) return tell(message.content, tokens);
    for (const call of message.tool_calls) {
      const content = carryOut(call.function.name, call.function.arguments);
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

async function responses() {
  const input = [{ role: "user", content: PROMPT }];
  const tools = [{ type: "function", name: "read_file", description, parameters: schema, strict: true }];
  let tokens = 0;
  for (let step = 0; step < 4; step++) {
    const response = await client.responses.stream({ model: MODEL, input, tools, store: false }).finalResponse();
    tokens += response.usage?.input_tokens ?? 0;
    input.push(...response.output);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) return tell(response.output_text, tokens);
    for (const call of calls) {
      input.push({ type: "function_call_output", call_id: call.call_id, output: carryOut(call.name, call.arguments) });
    }
  }
}

await (SDK_WIRE === "chat" ? chat() : responses());
