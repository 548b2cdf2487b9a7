// A running request in text terms: token events of the engine in, text events out.
//
// Owns: the engine streams of all its prompts; destroying it cancels what still runs.
// Threads: one consumer at a time, as engine/api/stream.h.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/engine.h"
#include "server/service/certificate.h"
#include "server/service/observer.h"
#include "server/service/sequence_text.h"
#include "server/service/text_event.h"

namespace assay {

// What the generation needs to know of its request.
struct GenerationPlan {
  SequenceTextOptions text;
  int32_t sequences_per_prompt = 1;  // max(n, best_of)
  int32_t max_tokens = 0;
  bool scores = false;               // the client asked for log probabilities
  bool echo = false;
  bool echo_scores = false;          // then the engine was asked for prompt_logprobs
};

struct PromptStart {
  std::vector<int32_t> ids;
  std::string text;  // what echo prints
  std::unique_ptr<Stream> stream;
};

class Generation {
 public:
  Generation(std::shared_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer, RequestObserver* observer,
             GenerationPlan plan, std::vector<PromptStart> prompts);
  ~Generation();

  // `ready` may be called from the engine thread whenever take() may have something; it must only hand over.
  void on_ready(const std::function<void()>& ready);

  // Everything new, in order per choice. Never blocks.
  std::vector<TextEvent> take();

  // True once every choice has ended or the request has failed; take() then has nothing more to give.
  bool done() const { return !status_.ok() || open_choices_ == 0; }
  // Not OK: the request failed as a whole (first error of any sequence).
  const absl::Status& status() const { return status_; }

  TextUsage usage() const;
  int num_choices() const;
  const std::vector<int32_t>& prompt_ids(int prompt) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Mean log probability per generated token; for best_of (the plan must ask the engine for logprobs).
  double mean_logprob(int choice) const;
  // Once done, when the request asked for a report.
  const std::optional<CertificateReport>& certificate() const { return certificate_; }
  double first_token_s() const { return first_token_s_; }  // since submit; negative = none yet

 private:
  using Clock = std::chrono::steady_clock;
  struct Prompt;
  struct Choice;

  void take_prompt_scores(Prompt& prompt, const std::vector<TokenLogprobs>& logprobs);
  void feed(Prompt& prompt, Event&& event, std::vector<TextEvent>& out);
  void echo_prompt(const Prompt& prompt, Choice& choice);
  void take_token(Choice& choice, const Event& event);
  void observe_token(Choice& choice);
  void take_certificate(const CertificateReport& report);
  void finish(Choice& choice, const Event& event, TextEvent& text_event);
  bool is_end_of_sequence(int32_t token) const;
  void fail(const Event& event);

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  RequestObserver* observer_;
  GenerationPlan plan_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;
  int open_choices_ = 0;
  absl::Status status_;
  std::optional<CertificateReport> certificate_;  // of the choices that have ended
  Clock::time_point submitted_;
  double first_token_s_ = -1.0;
};

}  // namespace assay
