#include "server/eval/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/eval/model_run.h"
#include "server/eval/needle_text.h"
#include "server/eval/pool_measure.h"
#include "server/eval/tool_arguments.h"
#include "server/service/prompt.h"

namespace assay {
namespace {

struct TokenPrompt {
  std::vector<int32_t> tokens;
  std::string answer;
  size_t context = 0;  // index
};

using Encode = std::function<absl::StatusOr<std::vector<int32_t>>(const std::string&)>;

// As a user's message where the model has a chat template, else as text that the model goes on with.
absl::StatusOr<Encode> make_encode(const ServeConfig& config, const Tokenizer& tokenizer) {
  std::string source = tokenizer.chat_template();
  if (!config.chat_template.empty()) {
    absl::StatusOr<std::string> text = read_text_file("chat-template", config.chat_template);
    if (!text.ok()) return text.status();
    source = *std::move(text);
  }
  if (source.empty()) {
    return Encode([&tokenizer](const std::string& text) { return tokenizer.encode(text + "\n\nAnswer:", true); });
  }
  absl::StatusOr<std::shared_ptr<const ChatTemplate>> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  return Encode([chat = *parsed, &tokenizer](const std::string& text) -> absl::StatusOr<std::vector<int32_t>> {
    Conversation conversation;
    conversation.messages = nlohmann::ordered_json::array();
    conversation.messages.push_back({{"role", "user"}, {"content", text}});
    absl::StatusOr<std::string> rendered = render_conversation(conversation, *chat, tokenizer);
    if (!rendered.ok()) return rendered.status();
    return tokenizer.encode(*rendered, false);
  });
}

absl::StatusOr<std::vector<TokenPrompt>> make_prompts(const NeedleOptions& options, const Encode& encode,
                                                      const Progress& progress) {
  std::vector<TokenPrompt> prompts;
  const int64_t total = options.prompts * static_cast<int64_t>(options.contexts.size());
  absl::Status failed;
  const auto count_tokens = [&](const std::string& text) -> int64_t {
    const absl::StatusOr<std::vector<int32_t>> tokens = encode(text);
    if (!tokens.ok()) failed = tokens.status();
    return tokens.ok() ? static_cast<int64_t>(tokens->size()) : INT64_MAX;
  };
  for (size_t c = 0; c < options.contexts.size(); ++c) {
    for (int64_t i = 0; i < options.prompts; ++i) {
      const double depth = (static_cast<double>(i) + 0.5) / static_cast<double>(options.prompts);
      const uint64_t seed = options.seed * 1'000'003 + c * 100'003 + static_cast<uint64_t>(i);
      const absl::StatusOr<NeedlePrompt> prompt = make_needle_prompt(seed, options.contexts[c], depth, count_tokens);
      if (!failed.ok()) return failed;
      if (!prompt.ok()) return prompt.status();
      prompts.push_back({*encode(prompt->text), prompt->answer, c});
      progress("prompts", static_cast<int64_t>(prompts.size()), total);
    }
  }
  return prompts;
}

Request greedy(const TokenPrompt& prompt, int64_t max_tokens) {
  Request request;
  request.prompt = prompt.tokens;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int32_t>(max_tokens);
  return request;
}

}  // namespace

absl::StatusOr<std::vector<NeedleResult>> run_needle(const ServeConfig& config, const std::vector<std::string>& specs,
                                                     const Tokenizer& tokenizer, const NeedleOptions& options,
                                                     const Progress& progress) {
  const absl::StatusOr<Encode> encode = make_encode(config, tokenizer);
  if (!encode.ok()) return encode.status();
  const absl::StatusOr<std::vector<TokenPrompt>> prompts = make_prompts(options, *encode, progress);
  if (!prompts.ok()) return prompts.status();
  const int64_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  std::vector<std::vector<int32_t>> first_answers;
  std::vector<NeedleResult> results;
  for (const std::string& spec : specs) {
    const absl::StatusOr<ServeConfig> pool_config = with_pool(config, spec);
    if (!pool_config.ok()) return pool_config.status();
    absl::StatusOr<ModelRun> run = ModelRun::start(*pool_config, tokenizer, longest + options.max_tokens,
                                                   options.chunk > 0 ? options.chunk : longest, 0);
    if (!run.ok()) return run.status();
    NeedleResult result;
    for (int64_t context : options.contexts) result.contexts.push_back({context, {}, {}, {}});
    PoolMeter meter(spec, *run);
    for (size_t i = 0; i < prompts->size(); ++i) {
      const TokenPrompt& prompt = (*prompts)[i];
      const absl::StatusOr<Completion> completion = meter.complete(greedy(prompt, options.max_tokens));
      if (!completion.ok()) return completion.status();
      progress(spec, static_cast<int64_t>(i) + 1, static_cast<int64_t>(prompts->size()));
      NeedleContext& context = result.contexts[prompt.context];
      const std::string reply = tokenizer.decode(completion->tokens, true);
      context.right.total += 1;
      context.right.hits += reply.find(prompt.answer) != std::string::npos;
      if (results.empty()) first_answers.push_back(completion->tokens);
      context.same.total += 1;
      context.same.hits += completion->tokens == first_answers[i];
      result.answers.push_back({.context = context.context,
                                .right = reply.find(prompt.answer) != std::string::npos,
                                .same = completion->tokens == first_answers[i],
                                .prompt_tokens = static_cast<int64_t>(prompt.tokens.size()),
                                .gate = {}});
      if (!completion->certificate) continue;
      add_cells(completion->certificate->decode, context.decode);
      result.answers.back().gate = completion->certificate->gate;
    }
    result.pool = meter.finish();
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace assay
