#include "server/service/generation.h"

#include <algorithm>

#include "server/service/text_offsets.h"

namespace assay {

struct Generation::Prompt {
  int32_t first_choice = 0;
  std::vector<int32_t> ids;
  std::string text;
  std::shared_ptr<const std::vector<TokenScore>> scores;  // of the prompt, for echo
  TextOffsets offsets;                                    // past the prompt
  bool scores_known = true;         // false while the engine still owes them
  std::vector<Event> held;          // events that arrived before the scores
  int64_t cached_tokens = 0;
  std::unique_ptr<Stream> stream;
};

struct Generation::Choice {
  explicit Choice(SequenceText sequence_text) : text(std::move(sequence_text)) {}

  SequenceText text;
  TextOffsets offsets;
  TextEvent pending;  // tokens and scores whose text has not gone out yet
  bool started = false;
  bool finished = false;
  int32_t sequence = 0;
  int32_t completion_tokens = 0;
  double logprob_sum = 0.0;
  Clock::time_point last_token;
};

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `in_text`: false for special tokens that the text leaves out.
TokenScore make_score(const Tokenizer& tokenizer, int32_t token, const TokenLogprobs* logprobs, bool in_text,
                      TextOffsets& offsets) {
  TokenScore score;
  score.token = token;
  score.bytes = tokenizer.token_bytes(token);
  score.text_offset = offsets.advance(in_text ? score.bytes : std::string());
  if (logprobs != nullptr) {
    score.logprob = logprobs->logprob;
    score.top = logprobs->top;
  }
  return score;
}

}  // namespace

Generation::Generation(std::shared_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
                       RequestObserver* observer, GenerationPlan plan, std::vector<PromptStart> prompts)
    : engine_(std::move(engine)),
      tokenizer_(std::move(tokenizer)),
      observer_(observer),
      plan_(std::move(plan)),
      submitted_(Clock::now()) {
  for (PromptStart& start : prompts) {
    Prompt prompt;
    prompt.first_choice = static_cast<int32_t>(choices_.size());
    prompt.ids = std::move(start.ids);
    prompt.text = std::move(start.text);
    prompt.scores_known = !plan_.echo_scores;
    prompt.stream = std::move(start.stream);
    for (int32_t i = 0; i < plan_.sequences_per_prompt; ++i) {
      Choice choice(SequenceText(tokenizer_, plan_.text));
      choice.sequence = i;
      choice.pending.choice = prompt.first_choice + i;
      choices_.push_back(std::move(choice));
    }
    prompts_.push_back(std::move(prompt));
  }
  open_choices_ = static_cast<int>(choices_.size());
}

Generation::~Generation() = default;

void Generation::on_ready(const std::function<void()>& ready) {
  for (Prompt& prompt : prompts_) prompt.stream->on_ready(ready);
}

std::vector<TextEvent> Generation::take() {
  std::vector<TextEvent> out;
  for (Prompt& prompt : prompts_) {
    for (Event& event : prompt.stream->take()) {
      if (done()) return out;
      if (!event.prompt_logprobs.empty()) {
        take_prompt_scores(prompt, event.prompt_logprobs);
        for (Event& held : std::exchange(prompt.held, {})) feed(prompt, std::move(held), out);
      }
      const bool failed = event.finish == FinishReason::kError || event.finish == FinishReason::kAbort;
      if (prompt.scores_known || failed) {
        feed(prompt, std::move(event), out);
      } else {
        prompt.held.push_back(std::move(event));
      }
    }
  }
  return out;
}

void Generation::take_prompt_scores(Prompt& prompt, const std::vector<TokenLogprobs>& logprobs) {
  auto scores = std::make_shared<std::vector<TokenScore>>();
  for (size_t i = 0; i < logprobs.size() && i < prompt.ids.size(); ++i) {
    scores->push_back(make_score(*tokenizer_, prompt.ids[i], i == 0 ? nullptr : &logprobs[i], true, prompt.offsets));
  }
  prompt.scores = std::move(scores);
  prompt.scores_known = true;
}

void Generation::feed(Prompt& prompt, Event&& event, std::vector<TextEvent>& out) {
  Choice& choice = choices_.at(prompt.first_choice + event.sequence);
  if (choice.finished || done()) return;
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kAbort) return fail(event);
  if (!choice.started) {
    choice.started = true;
    if (plan_.echo) echo_prompt(prompt, choice);
  }
  if (event.token) take_token(choice, event);
  if (event.finish) {
    if (event.sequence == 0) prompt.cached_tokens = event.usage.cached_tokens;
    finish(choice, event, choice.pending);
  }
  if (choice.pending.text.empty() && !event.finish) return;  // half a character, or a stop string may be beginning
  choice.pending.completion_tokens = choice.completion_tokens;
  out.push_back(std::exchange(choice.pending, TextEvent{}));
  choice.pending.choice = prompt.first_choice + event.sequence;
}

void Generation::echo_prompt(const Prompt& prompt, Choice& choice) {
  choice.pending.text = prompt.text;
  if (!plan_.scores) return;
  choice.pending.prompt_scores = prompt.scores;
  choice.offsets = prompt.offsets;
}

void Generation::take_token(Choice& choice, const Event& event) {
  if (choice.text.matched_stop()) return;  // was on its way when the stop string matched
  ++choice.completion_tokens;
  observe_token(choice);
  choice.pending.token_ids.push_back(*event.token);
  if (event.logprobs) choice.logprob_sum += event.logprobs->logprob;
  if (plan_.scores) {
    const bool in_text = !(plan_.text.skip_special_tokens && tokenizer_->is_special(*event.token));
    choice.pending.scores.push_back(
        make_score(*tokenizer_, *event.token, event.logprobs ? &*event.logprobs : nullptr, in_text, choice.offsets));
  }
  choice.pending.text +=
      event.stop_token ? choice.text.push_stop_token(*event.token) : choice.text.push(*event.token);
  if (choice.text.matched_stop() && !event.finish) {
    prompts_[choice.pending.choice / plan_.sequences_per_prompt].stream->stop(choice.sequence);
  }
}

void Generation::observe_token(Choice& choice) {
  const auto now = Clock::now();
  if (choice.completion_tokens == 1) {
    const double seconds = std::chrono::duration<double>(now - submitted_).count();
    if (first_token_s_ < 0.0) first_token_s_ = seconds;
    observer_->first_token(seconds);
  } else {
    observer_->next_token(std::chrono::duration<double>(now - choice.last_token).count());
  }
  choice.last_token = now;
}

void Generation::take_certificate(const CertificateReport& report) {
  if (!certificate_) {
    certificate_ = report;
  } else {
    merge_certificate(report, *certificate_);
  }
}

void Generation::finish(Choice& choice, const Event& event, TextEvent& text_event) {
  if (event.certificate) take_certificate(*event.certificate);
  text_event.text += choice.text.finish();
  text_event.finish = *event.finish;
  if (choice.text.matched_stop()) {
    text_event.finish = FinishReason::kStop;
    text_event.stop_reason = *choice.text.matched_stop();
  } else if (event.stop_token && !is_end_of_sequence(*event.stop_token)) {
    text_event.stop_reason = *event.stop_token;
    for (const auto& [id, text] : plan_.text.special_stops) {
      if (id == *event.stop_token) text_event.stop_reason = text;
    }
  }
  choice.finished = true;
  --open_choices_;
  SequenceReport report;
  report.usage = event.usage;
  report.usage.completion_tokens = choice.completion_tokens;
  report.finish = *text_event.finish;
  report.end_to_end_s = seconds_since(submitted_);
  observer_->sequence_finished(report);
  if (open_choices_ > 0) return;
  int32_t most = 0;
  for (const Choice& each : choices_) most = std::max(most, each.completion_tokens);
  observer_->request_finished(most);
}

bool Generation::is_end_of_sequence(int32_t token) const {
  const auto& ids = engine_->model().eos_token_ids;
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

void Generation::fail(const Event& event) {
  status_ = event.status;
  if (status_.ok()) status_ = absl::CancelledError("the request was cancelled: the server is shutting down");
  for (Prompt& prompt : prompts_) prompt.stream->cancel();
}

TextUsage Generation::usage() const {
  TextUsage usage;
  for (const Prompt& prompt : prompts_) {
    usage.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
    usage.cached_tokens += prompt.cached_tokens;
  }
  for (const Choice& choice : choices_) usage.completion_tokens += choice.completion_tokens;
  return usage;
}

int Generation::num_choices() const { return static_cast<int>(choices_.size()); }

const std::vector<int32_t>& Generation::prompt_ids(int prompt) const { return prompts_.at(prompt).ids; }

double Generation::mean_logprob(int choice) const {
  const Choice& chosen = choices_.at(choice);
  return chosen.logprob_sum / std::max(1, chosen.completion_tokens);
}

}  // namespace assay
