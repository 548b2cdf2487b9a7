// The one code path of every protocol: a request in text terms -> template, tokeniser -> engine -> text events.
//
// Owns: the engine, tokenizer and chat template. Threads: every method may be called from any thread; generate and tokenize
// take time that grows with the prompt (about 1 s per 5 MB), so callers run them outside their I/O threads.
// Errors: absl::Status as in service/status.h; messages name the field at fault.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/engine.h"
#include "server/service/generate_request.h"
#include "server/service/generation.h"
#include "server/service/observer.h"
#include "server/text/chat_template.h"
#include "server/text/tokenizer.h"

namespace assay {

struct TextServiceOptions {
  std::vector<std::string> served_model_names;  // at least one; the first is the one reported
  std::optional<std::chrono::milliseconds> request_timeout;
  std::string chat_template_source;  // as reported; empty without a template
};

struct TokenizeRequest {
  std::variant<std::string, Conversation> input;
  std::optional<bool> add_special_tokens;  // default: true for a prompt, false for a conversation
};

struct TokenizeResult {
  std::vector<int32_t> tokens;
  std::string prompt;  // the text that was tokenised
};

// InvalidArgument where the tokenizer can say an id that the model has no row for: such a prompt could not be run.
absl::Status check_vocabulary(const Tokenizer& tokenizer, const ModelInfo& model);

class TextService {
 public:
  // `chat_template` may be null: then conversations are refused. `observer` must outlive the service.
  TextService(std::shared_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
              std::shared_ptr<const ChatTemplate> chat_template, TextServiceOptions options, RequestObserver* observer);

  // OK: every sequence is in the engine's queue. Otherwise nothing of the request is left behind.
  absl::StatusOr<std::unique_ptr<Generation>> generate(const GenerateRequest& request);

  absl::StatusOr<TokenizeResult> tokenize(const TokenizeRequest& request) const;
  absl::StatusOr<std::string> detokenize(const std::vector<int32_t>& tokens, bool skip_special_tokens) const;

  // NotFound when `name` is neither empty nor served.
  absl::Status check_model(const std::string& name) const;
  // From now on generate says Unavailable; what runs goes on.
  void drain() { engine_->drain(); }

  const std::vector<std::string>& model_names() const { return options_.served_model_names; }
  const Engine& engine() const { return *engine_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& chat_template_source() const { return options_.chat_template_source; }

 private:
  absl::StatusOr<std::unique_ptr<Generation>> admit(const GenerateRequest& request);
  absl::StatusOr<std::vector<PromptStart>> make_prompts(const GenerateRequest& request) const;
  absl::StatusOr<PromptStart> text_prompt(const std::string& text, bool add_special_tokens) const;
  absl::StatusOr<PromptStart> token_prompt(const std::vector<int32_t>& ids, bool want_text, bool skip_special) const;
  absl::StatusOr<std::string> render(const Conversation& conversation) const;
  absl::Status check_length(const PromptStart& prompt, std::optional<int32_t> max_tokens, const char* field) const;
  // What each prompt and choice may ask for alone, and all together may not.
  absl::Status check_size(const GenerateRequest& request, const std::vector<PromptStart>& prompts) const;
  absl::Status check_token_ids(const std::vector<int32_t>& ids, const std::string& field) const;
  absl::Status check_options(const GenerateRequest& request) const;
  GenerationPlan make_plan(const GenerateRequest& request) const;
  Request engine_request(const GenerateRequest& request, const GenerationPlan& plan, const PromptStart& prompt) const;
  SamplingParams sampling_params(const GenerateRequest& request, const GenerationPlan& plan, size_t prompt_tokens) const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_template_;
  TextServiceOptions options_;
  RequestObserver* observer_;
};

}  // namespace assay
