#include "server/http/openai_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "server/http/error_reply.h"
#include "server/http/openai_format.h"
#include "server/service/collector.h"

namespace assay::http {
namespace {

constexpr size_t kLargeText = 64 * 1024;

std::string generation_fields(const Generation& generation) {
  const TextUsage usage = generation.usage();
  std::string text = fmt::format("prompt_tokens={} cached_tokens={} completion_tokens={} choices={}", usage.prompt_tokens,
                                 usage.cached_tokens, usage.completion_tokens, generation.num_choices());
  if (generation.first_token_s() >= 0.0) text += fmt::format(" first_token_s={:.4f}", generation.first_token_s());
  return text;
}

class GenerationProducer : public Producer {
 public:
  GenerationProducer(std::unique_ptr<Generation> generation, ReplyOptions options)
      : generation_(std::move(generation)), options_(std::move(options)) {}

  void on_ready(std::function<void()> ready) override { generation_->on_ready(ready); }
  std::string log_fields() const override { return generation_fields(*generation_); }

 protected:
  // What ends a reply: usage, and the certificate where asked for.
  void add_summary(Json& frame) const {
    frame["usage"] = usage_json(generation_->usage());
    if (const auto report = generation_->certificate()) frame["certificate"] = certificate_json(*report);
  }

  const Tokenizer& tokenizer() const { return generation_->tokenizer(); }

  std::unique_ptr<Generation> generation_;
  ReplyOptions options_;
};

// Each text event is one chunk; then usage alone with no choices, where asked for; then [DONE].
class StreamProducer final : public GenerationProducer {
 public:
  StreamProducer(std::unique_ptr<Generation> generation, ReplyOptions options)
      : GenerationProducer(std::move(generation), std::move(options)), started_(generation_->num_choices(), false), sent_tokens_(generation_->num_choices(), 0) {}

  Production take() override {
    auto events = std::make_shared<const std::vector<TextEvent>>(generation_->take());
    if (std::none_of(events->begin(), events->end(), is_large)) return written(*events);
    Production production;
    production.make = [this, events] { return written(*events); };
    return production;
  }

 private:
  // Seconds to write, with many log probabilities.
  static bool is_large(const TextEvent& event) { return event.prompt_scores != nullptr || event.text.size() > kLargeText; }

  Production written(const std::vector<TextEvent>& events) {
    Production production;
    for (const TextEvent& event : events) production.bytes += server_sent_event(chunk(event));
    if (!generation_->done()) return production;
    production.end = true;
    if (!generation_->status().ok()) {
      const ErrorView error = describe_error(generation_->status());
      production.status = error.http_status;
      production.bytes += "data: " + error_body(error) + "\n\n";
    } else if (options_.include_usage || generation_->certificate()) {
      production.bytes += server_sent_event(last_chunk());
    }
    production.bytes += kDoneEvent;
    return production;
  }

  Json chunk(const TextEvent& event) {
    const bool first = !started_[event.choice];
    started_[event.choice] = true;
    Json frame = reply_frame(options_);
    Json choice = chunk_choice(event, options_, first, tokenizer());
    if (first && options_.return_token_ids) {
      choice["prompt_token_ids"] = generation_->prompt_ids(event.choice / options_.sequences_per_prompt);
    }
    frame["choices"] = Json::array({std::move(choice)});
    sent_tokens_[event.choice] = event.completion_tokens;
    if (options_.continuous_usage) frame["usage"] = usage_json(usage_so_far());
    return frame;
  }

  // The generation may be ahead of the chunk that is being made.
  TextUsage usage_so_far() const {
    TextUsage usage = generation_->usage();
    usage.completion_tokens = std::accumulate(sent_tokens_.begin(), sent_tokens_.end(), int64_t{0});
    return usage;
  }

  Json last_chunk() const {
    Json frame = reply_frame(options_);
    frame["choices"] = Json::array();
    add_summary(frame);
    return frame;
  }

  std::vector<bool> started_;         // by choice
  std::vector<int32_t> sent_tokens_;  // by choice
};

class WholeProducer final : public GenerationProducer {
 public:
  WholeProducer(std::unique_ptr<Generation> generation, ReplyOptions options)
      : GenerationProducer(std::move(generation), std::move(options)), collector_(generation_->num_choices()) {}

  Production take() override {
    for (TextEvent& event : generation_->take()) collector_.add(std::move(event));
    Production production;
    production.end = generation_->done();
    if (!production.end) return production;
    if (!generation_->status().ok()) {
      Reply error = error_reply(generation_->status());
      production.status = error.status;
      production.headers = std::move(error.headers);
      production.bytes = std::move(error.body);
      return production;
    }
    production.make = [this] { return whole(); };
    return production;
  }

 private:
  // Seconds, with many log probabilities.
  Production whole() {
    Production production;
    production.end = true;
    production.headers = {{"Content-Type", "application/json"}};
    production.bytes = to_text(body());
    return production;
  }

  Json body() {
    Json frame = reply_frame(options_);
    frame["choices"] = Json::array();
    for (const TextEvent& choice : collector_.choices(*generation_, options_.n, options_.sequences_per_prompt)) {
      frame["choices"].push_back(whole_choice(choice, options_, tokenizer()));
      if (options_.return_token_ids) {
        frame["choices"].back()["prompt_token_ids"] = generation_->prompt_ids(choice.choice / options_.n);
      }
    }
    add_summary(frame);
    return frame;
  }

  Collector collector_;
};

}  // namespace

Reply make_openai_reply(std::unique_ptr<Generation> generation, ReplyOptions options) {
  Reply reply;
  reply.event_stream = options.stream;
  if (options.stream) {
    reply.headers = {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"},
                     {"X-Accel-Buffering", "no"}};
    reply.producer = std::make_unique<StreamProducer>(std::move(generation), std::move(options));
  } else {
    reply.producer = std::make_unique<WholeProducer>(std::move(generation), std::move(options));
  }
  return reply;
}

}  // namespace assay::http
