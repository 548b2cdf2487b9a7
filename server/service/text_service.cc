#include "server/service/text_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/service/prompt.h"
#include "server/service/status.h"

namespace assay {
namespace {

constexpr int64_t kMaxPromptScores = 4'000'000;  // of one request; each takes some hundred bytes until the reply has gone
constexpr int32_t kDefaultCompletionTokens = 16;  // OpenAI's default of /v1/completions

bool is_conversation(const GenerateRequest& request) { return std::holds_alternative<Conversation>(request.input); }

int32_t sequences_per_prompt(const GenerateRequest& request) { return std::max(request.n, request.best_of); }

// The engine's messages begin with the field at fault.
absl::Status name_field(const absl::Status& status) {
  const std::string message(status.message());
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.");
  if (status.code() != absl::StatusCode::kInvalidArgument || end == std::string::npos || end == 0) return status;
  return field_error(message.substr(0, end), message);
}

std::string rejection_reason(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted: return "queue_full";
    case absl::StatusCode::kUnavailable: return "unavailable";
    default: return "invalid_request";
  }
}

}  // namespace

absl::Status check_vocabulary(const Tokenizer& tokenizer, const ModelInfo& model) {
  if (tokenizer.vocab_size() <= model.vocab_size) return absl::OkStatus();
  const int32_t id = tokenizer.vocab_size() - 1;
  return absl::InvalidArgumentError(
      fmt::format("tokenizer.json has the token \"{}\" with id {}, but the model's vocab_size is {} (ids 0 to {}); take the "
                  "tokenizer that belongs to this model, or remove the tokens that it does not know", tokenizer.token_text(id), id,
                  model.vocab_size, model.vocab_size - 1));
}

TextService::TextService(std::shared_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
                         std::shared_ptr<const ChatTemplate> chat_template, TextServiceOptions options,
                         RequestObserver* observer)
    : engine_(std::move(engine)),
      tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      options_(std::move(options)),
      observer_(observer) {}

absl::Status TextService::check_model(const std::string& name) const {
  const auto& names = options_.served_model_names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
  return with_code(absl::NotFoundError(fmt::format("the model \"{}\" does not exist here; served: {}", name,
                                                   fmt::join(names, ", "))),
                   "model_not_found");
}

absl::StatusOr<std::unique_ptr<Generation>> TextService::generate(const GenerateRequest& request) {
  absl::StatusOr<std::unique_ptr<Generation>> generation = admit(request);
  if (!generation.ok()) observer_->rejected(rejection_reason(generation.status()));
  return generation;
}

absl::StatusOr<std::unique_ptr<Generation>> TextService::admit(const GenerateRequest& request) {
  if (absl::Status status = check_model(request.model); !status.ok()) return status;
  if (absl::Status status = check_options(request); !status.ok()) return status;
  absl::StatusOr<std::vector<PromptStart>> prompts = make_prompts(request);
  if (!prompts.ok()) return prompts.status();
  if (absl::Status status = check_size(request, *prompts); !status.ok()) return status;
  GenerationPlan plan = make_plan(request);
  for (PromptStart& prompt : *prompts) {
    Request engine_side = engine_request(request, plan, prompt);
    plan.max_tokens = engine_side.sampling.max_tokens;
    absl::StatusOr<std::unique_ptr<Stream>> stream = engine_->submit(std::move(engine_side));
    if (!stream.ok()) return name_field(stream.status());  // streams of earlier prompts cancel themselves
    prompt.stream = std::move(*stream);
  }
  observer_->admitted({request.n, plan.max_tokens});
  return std::make_unique<Generation>(engine_, tokenizer_, observer_, std::move(plan), std::move(*prompts));
}

absl::Status TextService::check_options(const GenerateRequest& request) const {
  if (request.best_of != 0 && request.best_of < request.n) {
    return field_error("best_of", fmt::format("best_of must be at least n, got best_of = {} and n = {}", request.best_of,
                                              request.n));
  }
  if (request.stream && request.best_of > request.n) {
    return field_error("best_of", "best_of above n cannot be streamed: the best are known only at the end");
  }
  if (request.sampling.max_tokens == 0 && !request.echo) {
    return field_error("max_tokens", "max_tokens must be at least 1 (0 is for echo only)");
  }
  if (request.sampling.max_tokens && request.sampling.min_tokens > *request.sampling.max_tokens) {
    return field_error("min_tokens", "min_tokens must not be above max_tokens");
  }
  if (absl::Status status = check_token_ids(request.sampling.stop_token_ids, "stop_token_ids"); !status.ok()) return status;
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (absl::Status status = check_token_ids({id}, "logit_bias"); !status.ok()) return status;
  }
  if (request.sampling.logprobs > engine_->config().max_logprobs) {
    return field_error(is_conversation(request) ? "top_logprobs" : "logprobs",
                       fmt::format("at most {} log probabilities per token are served, asked for {}",
                                   engine_->config().max_logprobs, request.sampling.logprobs));
  }
  return absl::OkStatus();
}

absl::Status TextService::check_size(const GenerateRequest& request, const std::vector<PromptStart>& prompts) const {
  const int64_t sequences = sequences_per_prompt(request);
  const int64_t num_prompts = static_cast<int64_t>(prompts.size());
  const int64_t places = engine_->config().max_num_queued_reqs;
  if (num_prompts > 1 && num_prompts * sequences > places) {
    return field_error("prompt", fmt::format("prompt: {} prompts times {} sequences are more than the whole queue holds ({}): "
                                             "they could never be taken; send fewer at once", num_prompts, sequences, places));
  }
  if (!request.echo || request.sampling.logprobs < 0) return absl::OkStatus();
  int64_t num_scores = 0;
  for (const PromptStart& prompt : prompts) {
    num_scores += static_cast<int64_t>(prompt.ids.size()) * sequences * (request.sampling.logprobs + 1);
  }
  if (num_scores <= kMaxPromptScores) return absl::OkStatus();
  return field_error("logprobs", fmt::format("logprobs: echo with these prompts makes {} scores (prompt tokens x choices x "
                                             "(logprobs + 1)), at most {} are served at once", num_scores, kMaxPromptScores));
}

absl::Status TextService::check_token_ids(const std::vector<int32_t>& ids, const std::string& field) const {
  const int32_t vocab_size = engine_->model().vocab_size;
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    // Ids that JSON refuses before the model is known have these words too.
    const std::string range = id < 0 ? "" : fmt::format(" (0 to {})", vocab_size - 1);
    return field_error(field, fmt::format("{}: token id {} is out of vocabulary{}", field, id, range));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextService::render(const Conversation& conversation) const {
  if (chat_template_ == nullptr) {
    return field_error("messages", "this model has no chat template; use /v1/completions, or start the server with "
                                   "--chat-template FILE");
  }
  return render_conversation(conversation, *chat_template_, *tokenizer_);
}

absl::StatusOr<PromptStart> TextService::text_prompt(const std::string& text, bool add_special_tokens) const {
  PromptStart prompt;
  prompt.ids = tokenizer_->encode(text, add_special_tokens);
  prompt.text = text;
  if (prompt.ids.empty()) return field_error("prompt", "the prompt is empty: it must have at least one token");
  return prompt;
}

absl::StatusOr<PromptStart> TextService::token_prompt(const std::vector<int32_t>& ids, bool want_text,
                                                      bool skip_special) const {
  if (ids.empty()) return field_error("prompt", "the prompt is empty: it must have at least one token");
  if (absl::Status status = check_token_ids(ids, "prompt"); !status.ok()) return status;
  PromptStart prompt;
  prompt.ids = ids;
  if (want_text) prompt.text = tokenizer_->decode(ids, skip_special);
  return prompt;
}

absl::StatusOr<std::vector<PromptStart>> TextService::make_prompts(const GenerateRequest& request) const {
  std::vector<PromptStart> prompts;
  const auto add = [&](absl::StatusOr<PromptStart> prompt) -> absl::Status {
    if (!prompt.ok()) return prompt.status();
    const char* field = is_conversation(request) ? "messages" : "prompt";
    if (absl::Status status = check_length(*prompt, request.sampling.max_tokens, field); !status.ok()) return status;
    prompts.push_back(std::move(*prompt));
    return absl::OkStatus();
  };
  if (const auto* conversation = std::get_if<Conversation>(&request.input)) {
    absl::StatusOr<std::string> text = render(*conversation);
    if (!text.ok()) return text.status();
    // The template prints BOS itself, so special tokens are not added a second time.
    if (absl::Status status = add(text_prompt(*text, request.add_special_tokens.value_or(false))); !status.ok()) return status;
    return prompts;
  }
  for (const TextPrompt& prompt : std::get<std::vector<TextPrompt>>(request.input)) {
    const auto* text = std::get_if<std::string>(&prompt);
    absl::Status status = add(text != nullptr ? text_prompt(*text, request.add_special_tokens.value_or(true))
                                              : token_prompt(std::get<std::vector<int32_t>>(prompt), request.echo,
                                                             request.skip_special_tokens));
    if (!status.ok()) return status;
  }
  if (prompts.empty()) return field_error("prompt", "the prompt is empty: it must hold at least one prompt");
  return prompts;
}

absl::Status TextService::check_length(const PromptStart& prompt, std::optional<int32_t> max_tokens,
                                       const char* field) const {
  const int64_t limit = engine_->config().max_model_len;
  const int64_t needed = static_cast<int64_t>(prompt.ids.size()) + (max_tokens == 0 ? 0 : 1);
  if (needed <= limit) return absl::OkStatus();
  return with_code(field_error(field, fmt::format("this model's maximum context length is {} tokens, but the prompt has "
                                                     "{} tokens, which leaves no room for an answer", limit,
                                                     prompt.ids.size())),
                   "context_length_exceeded");
}

GenerationPlan TextService::make_plan(const GenerateRequest& request) const {
  GenerationPlan plan;
  plan.text.include_stop_str_in_output = request.include_stop_str_in_output;
  plan.text.skip_special_tokens = request.skip_special_tokens;
  plan.text.min_tokens = request.sampling.min_tokens;
  for (const std::string& stop : request.stop) {
    const std::optional<int32_t> id = tokenizer_->token_id(stop);
    if (id && tokenizer_->is_special(*id) && *id < engine_->model().vocab_size) {  // others the model cannot say
      plan.text.special_stops.emplace_back(*id, stop);
    } else {
      plan.text.stop.push_back(stop);
    }
  }
  plan.sequences_per_prompt = sequences_per_prompt(request);
  plan.scores = request.sampling.logprobs >= 0;
  plan.echo = request.echo;
  plan.echo_scores = request.echo && plan.scores;
  return plan;
}

Request TextService::engine_request(const GenerateRequest& request, const GenerationPlan& plan,
                                    const PromptStart& prompt) const {
  Request result;
  result.id = request.id;
  result.prompt = prompt.ids;
  result.sampling = sampling_params(request, plan, prompt.ids.size());
  result.num_sequences = plan.sequences_per_prompt;
  result.priority = request.priority;
  result.cache_salt = request.cache_salt;
  if (request.certificate) result.certificate = *request.certificate;
  if (options_.request_timeout) result.deadline = std::chrono::steady_clock::now() + *options_.request_timeout;
  return result;
}

SamplingParams TextService::sampling_params(const GenerateRequest& request, const GenerationPlan& plan,
                                            size_t prompt_tokens) const {
  const SamplingFields& fields = request.sampling;
  const auto& defaults = engine_->model().sampling_defaults;
  SamplingParams params;
  params.temperature = fields.temperature.value_or(defaults.temperature);
  params.top_p = fields.top_p.value_or(defaults.top_p);
  params.top_k = fields.top_k.value_or(defaults.top_k);
  params.min_p = fields.min_p.value_or(defaults.min_p);
  params.repetition_penalty = fields.repetition_penalty.value_or(defaults.repetition_penalty);
  params.presence_penalty = fields.presence_penalty.value_or(0.0f);
  params.frequency_penalty = fields.frequency_penalty.value_or(0.0f);
  params.seed = fields.seed;
  params.logit_bias = fields.logit_bias;
  const auto remaining = static_cast<int32_t>(engine_->config().max_model_len - static_cast<int64_t>(prompt_tokens));
  const int32_t default_tokens = is_conversation(request) ? remaining : kDefaultCompletionTokens;
  params.max_tokens = std::min(fields.max_tokens.value_or(default_tokens), remaining);
  params.min_tokens = std::min(fields.min_tokens, params.max_tokens);
  params.ignore_eos = fields.ignore_eos;
  params.stop_token_ids = fields.stop_token_ids;
  for (const auto& [id, text] : plan.text.special_stops) params.stop_token_ids.push_back(id);
  params.logprobs = fields.logprobs;
  if (params.logprobs < 0 && request.best_of > request.n) params.logprobs = 0;  // ranks the candidates
  // The engine runs a request without new tokens only to score its prompt.
  if (plan.echo_scores || params.max_tokens == 0) params.prompt_logprobs = std::max(0, fields.logprobs);
  return params;
}

absl::StatusOr<TokenizeResult> TextService::tokenize(const TokenizeRequest& request) const {
  TokenizeResult result;
  if (const auto* conversation = std::get_if<Conversation>(&request.input)) {
    absl::StatusOr<std::string> text = render(*conversation);
    if (!text.ok()) return text.status();
    result.prompt = std::move(*text);
    result.tokens = tokenizer_->encode(result.prompt, request.add_special_tokens.value_or(false));
  } else {
    result.prompt = std::get<std::string>(request.input);
    result.tokens = tokenizer_->encode(result.prompt, request.add_special_tokens.value_or(true));
  }
  return result;
}

absl::StatusOr<std::string> TextService::detokenize(const std::vector<int32_t>& tokens, bool skip_special_tokens) const {
  for (const int32_t id : tokens) {
    if (id < 0 || id >= std::max(engine_->model().vocab_size, tokenizer_->vocab_size())) {
      return field_error("tokens", fmt::format("tokens: token id {} is out of vocabulary", id));
    }
  }
  return tokenizer_->decode(tokens, skip_special_tokens);
}

}  // namespace assay
