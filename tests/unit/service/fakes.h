// Fakes for tests of everything above the engine: a tokenizer whose tokens are bytes, a template, an engine that says what the
// test tells it to, an observer that counts.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/api/engine.h"
#include "server/service/observer.h"
#include "server/service/text_service.h"
#include "server/text/chat_template.h"
#include "server/text/tokenizer.h"
#include "server/text/utf8.h"

namespace assay::testing {

inline constexpr int32_t kEos = 256;        // "<eos>", special
inline constexpr int32_t kTurn = 257;       // "<turn>", special
inline constexpr int32_t kByteVocab = 258;

// Ids 0 to 255 are bytes; two special tokens.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    std::vector<int32_t> ids;
    if (add_special_tokens && add_bos) ids.push_back(kTurn);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (!(skip_special_tokens && is_special(id))) bytes += token_bytes(id);
    }
    return replace_invalid_utf8(bytes);
  }
  std::string_view token_text(int32_t id) const override { return id == kEos ? "<eos>" : id == kTurn ? "<turn>" : ""; }
  std::string token_bytes(int32_t id) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    return std::string(token_text(id));
  }
  std::optional<int32_t> token_id(std::string_view token) const override {
    if (token == "<eos>") return kEos;
    if (token == "<turn>") return kTurn;
    return token.size() == 1 ? std::optional<int32_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }
  bool is_special(int32_t id) const override { return id >= 256; }
  int32_t vocab_size() const override { return kByteVocab; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return kEos; }
  const std::string& bos_token() const override { return none_; }
  const std::string& eos_token() const override { return eos_; }
  const std::string& pad_token() const override { return none_; }
  const std::string& unk_token() const override { return none_; }
  const std::string& chat_template() const override { return none_; }

  bool add_bos = false;

 private:
  std::string none_, eos_ = "<eos>";
};

// "role:content;" for each message, then ">" as the generation prompt; role "bad" raises.
class PlainTemplate final : public ChatTemplate {
 public:
  explicit PlainTemplate(bool parts = false) : parts_(parts) {}
  absl::StatusOr<std::string> render(const nlohmann::ordered_json& variables) const override {
    std::string text;
    for (const auto& message : variables["messages"]) {
      if (message["role"] == "bad") return absl::InvalidArgumentError("roles must alternate");
      text += message["role"].get<std::string>() + ":";
      if (message["content"].is_array()) {
        for (const auto& part : message["content"]) text += "[" + part["text"].get<std::string>() + "]";
      } else {
        text += message["content"].get<std::string>();
      }
      if (message.contains("tool_calls")) text += message["tool_calls"][0]["function"]["arguments"]["x"].dump();
      text += ";";
    }
    if (variables.value("shout", false)) text += "!";
    return text + (variables["add_generation_prompt"].get<bool>() ? ">" : "");
  }
  bool wants_content_parts() const override { return parts_; }

 private:
  bool parts_;
};

// A stream that the test fills by hand, or that has its whole script from the start.
class ScriptedStream final : public Stream {
 public:
  explicit ScriptedStream(int32_t sequences) : open_(sequences) {}
  ~ScriptedStream() override {
    if (open_ > 0 && on_cancel) on_cancel();
  }
  void push(Event event) {
    std::function<void()> ready;
    {
      const std::lock_guard lock(mutex_);
      if (event.finish) --open_;
      if (events_.empty()) ready = ready_;
      events_.push_back(std::move(event));
    }
    if (ready) ready();
  }
  std::vector<Event> take() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  std::vector<Event> wait(std::chrono::milliseconds) override { return take(); }
  void on_ready(std::function<void()> ready) override {
    bool now = false;
    {
      const std::lock_guard lock(mutex_);
      ready_ = ready;
      now = !events_.empty() && ready;
    }
    if (now) ready();
  }
  void stop(int32_t sequence) override {
    stopped.push_back(sequence);
    Event event;
    event.sequence = sequence;
    event.finish = FinishReason::kStop;
    push(event);
  }
  void cancel() override { cancelled = true; }

  std::vector<int32_t> stopped;
  bool cancelled = false;
  std::function<void()> on_cancel;

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
  std::function<void()> ready_;
  int32_t open_;
};

inline Event token_event(int32_t sequence, int32_t token, float logprob = -1.0f) {
  Event event;
  event.sequence = sequence;
  event.token = token;
  event.logprobs = TokenLogprobs{token, logprob, 1, {{token, logprob}, {'?', logprob - 1.0f}}};
  return event;
}

inline Event end_event(int32_t sequence, FinishReason finish) {
  Event event;
  event.sequence = sequence;
  event.finish = finish;
  return event;
}

// Each submit calls `script` with the request and a stream to fill.
class FakeEngine final : public Engine {
 public:
  using Script = std::function<void(const Request&, ScriptedStream&)>;
  explicit FakeEngine(Script script) : script_(std::move(script)) {
    model_.vocab_size = kByteVocab;
    model_.max_model_len = config_.max_model_len = 64;
    model_.num_layers = 2;
    model_.num_heads = 3;
    model_.eos_token_ids = {kEos};
    pool_.pool = "exact";
  }
  absl::StatusOr<std::unique_ptr<Stream>> submit(Request request) override {
    if (!submit_status.ok()) return submit_status;
    if (draining) return absl::UnavailableError("draining");
    auto stream = std::make_unique<ScriptedStream>(request.num_sequences);
    stream->on_cancel = [this] { ++cancelled; };
    last = stream.get();
    requests.push_back(request);
    if (script_) script_(request, *stream);
    return stream;
  }
  void drain() override { draining = true; }
  void abort_all() override { aborted = true; }
  EngineStats stats() const override { return stats_value; }
  MeterSnapshot meters() const override { return meters_value; }
  const ModelInfo& model() const override { return model_; }
  const PoolInfo& pool() const override { return pool_; }
  const EngineConfig& config() const override { return config_; }

  std::vector<Request> requests;
  ScriptedStream* last = nullptr;  // of the newest request, while it lives
  absl::Status submit_status;
  EngineStats stats_value;
  MeterSnapshot meters_value;
  std::atomic<int> cancelled{0};
  std::atomic<bool> draining{false};
  std::atomic<bool> aborted{false};
  ModelInfo model_;
  PoolInfo pool_;
  EngineConfig config_;

 private:
  Script script_;
};

// Says `text` byte by byte on every sequence, then ends: by length when max_tokens is reached, else by <eos>.
inline FakeEngine::Script says(const std::string& text) {
  return [text](const Request& request, ScriptedStream& stream) {
    if (request.sampling.prompt_logprobs >= 0) {
      Event scores;
      for (const int32_t id : request.prompt) scores.prompt_logprobs.push_back({id, -0.5f, 1, {{id, -0.5f}}});
      if (request.sampling.max_tokens == 0) scores.finish = FinishReason::kLength;
      stream.push(scores);
      if (request.sampling.max_tokens == 0) return;
    }
    for (int32_t sequence = 0; sequence < request.num_sequences; ++sequence) {
      int32_t count = 0;
      for (const char c : text) {
        if (count++ == request.sampling.max_tokens) break;
        stream.push(token_event(sequence, static_cast<unsigned char>(c), -1.0f - static_cast<float>(sequence)));
      }
      Event end = end_event(sequence, FinishReason::kLength);
      if (count < request.sampling.max_tokens || count == 0) {
        end.finish = FinishReason::kStop;
        end.token = end.stop_token = kEos;
      }
      stream.push(end);
    }
  };
}

class CountingObserver final : public RequestObserver {
 public:
  void admitted(const RequestParameters&) override { ++num_admitted; }
  void rejected(const std::string& reason) override { ++num_rejected[reason]; }
  void first_token(double) override { ++num_first; }
  void next_token(double) override { ++num_next; }
  void sequence_finished(const SequenceReport& report) override { reports.push_back(report); }
  void request_finished(int32_t most) override { most_generated.push_back(most); }

  int num_admitted = 0, num_first = 0, num_next = 0;
  std::map<std::string, int> num_rejected;
  std::vector<SequenceReport> reports;
  std::vector<int32_t> most_generated;
};

struct ServiceFixture {
  explicit ServiceFixture(FakeEngine::Script script) : engine(std::make_shared<FakeEngine>(std::move(script))) {
    TextServiceOptions options;
    options.served_model_names = {"fake", "alias"};
    service = std::make_shared<TextService>(engine, tokenizer, std::make_shared<PlainTemplate>(), options, &observer);
  }
  std::shared_ptr<FakeEngine> engine;
  std::shared_ptr<ByteTokenizer> tokenizer = std::make_shared<ByteTokenizer>();
  CountingObserver observer;
  std::shared_ptr<TextService> service;
};

inline GenerateRequest prompt_request(const std::string& prompt) {
  GenerateRequest request;
  request.input = std::vector<TextPrompt>{prompt};
  request.sampling.max_tokens = 32;
  return request;
}

inline GenerateRequest chat_request(const nlohmann::ordered_json& messages) {
  GenerateRequest request;
  Conversation conversation;
  conversation.messages = messages;
  request.input = conversation;
  return request;
}

}  // namespace assay::testing
