#include "server/sweep/calibration.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/sweep/request_factory.h"

namespace assay::sweep {
namespace {

namespace asio = boost::asio;
using nlohmann::json;

constexpr double kEstimatedTokensPerWord = 1.0;

// Tokens of one prompt as the server counts them, or nothing where it does not say.
class TokenCounter {
 public:
  TokenCounter(HttpClient& client, const SweepOptions& options, const std::string& model)
      : client_(client), options_(options), model_(model) {}

  asio::awaitable<std::optional<double>> by_tokenize(const std::string& prompt) {
    const json answer = co_await post("/tokenize", prompt_body(prompt));
    if (answer.is_object() && answer.contains("count") && answer["count"].is_number())
      co_return answer["count"].get<double>();
    if (answer.is_object() && answer.contains("tokens") && answer["tokens"].is_array()) {
      co_return static_cast<double>(answer["tokens"].size());
    }
    co_return std::nullopt;
  }

  asio::awaitable<std::optional<double>> by_usage(const std::string& prompt) {
    json body = prompt_body(prompt);
    body["max_tokens"] = 1;
    const json answer = co_await post(options_.chat ? "/v1/chat/completions" : "/v1/completions", std::move(body));
    const json usage = answer.is_object() ? answer.value("usage", json()) : json();
    if (!usage.is_object() || !usage.contains("prompt_tokens") || !usage["prompt_tokens"].is_number())
      co_return std::nullopt;
    co_return usage["prompt_tokens"].get<double>();
  }

 private:
  json prompt_body(const std::string& prompt) const {
    json body = {{"model", model_}};
    if (options_.chat) {
      body["messages"] = json::parse(user_message(prompt));
    } else {
      body["prompt"] = prompt;
    }
    return body;
  }

  asio::awaitable<json> post(std::string path, json body) {
    HttpRequest request{"POST", std::move(path), body.dump(), options_.timeout_s};
    const FetchedResponse response = co_await fetch(client_, std::move(request));
    if (!response.ok()) co_return json();
    co_return json::parse(response.body, nullptr, false);
  }

  HttpClient& client_;
  const SweepOptions& options_;
  const std::string& model_;
};

// Prompt with `count` words of the list from `first` on, in the form that made prompts have.
std::string word_run(size_t first, size_t count) {
  const std::vector<std::string>& words = candidate_words();
  std::string text;
  for (size_t i = 0; i < count; ++i) text.append(" ").append(words[(first + i) % words.size()]);
  return text;
}

// Keeps the words of the cheapest cost that most words share, so that counts add up, and one of every other cost to
// fill gaps.
void keep_regular_words(std::vector<TokenCosts::Word>* words) {
  std::map<double, int> frequency;
  for (const auto& word : *words) ++frequency[word.tokens];
  double common = 1.0;
  int most = 0;
  for (const auto& [tokens, count] : frequency) {
    if (count > most) most = count, common = tokens;
  }
  std::map<double, bool> seen;
  std::vector<TokenCosts::Word> kept;
  for (const auto& word : *words) {
    if (word.tokens == common || (word.tokens < common && !seen[word.tokens])) kept.push_back(word);
    seen[word.tokens] = true;
  }
  *words = std::move(kept);
}

// Prices words [first, first + count) from the cost of the whole run, by halves: a run that costs one token a word is
// settled at once, so an ordinary tokenizer needs a few dozen questions instead of one for every word.
asio::awaitable<bool> price_words(TokenCounter& counter, double base, std::vector<TokenCosts::Word>* priced) {
  std::vector<std::pair<size_t, size_t>> runs = {{0, candidate_words().size()}};
  while (!runs.empty()) {
    const auto [first, count] = runs.back();
    runs.pop_back();
    const std::optional<double> total = co_await counter.by_tokenize(word_run(0, 1) + word_run(first, count));
    if (!total) co_return false;
    const double tokens = *total - base;
    if (count == 1 || tokens == static_cast<double>(count)) {
      for (size_t i = 0; i < count; ++i)
        priced->push_back({candidate_words()[first + i], tokens / static_cast<double>(count)});
    } else {
      runs.push_back({first + count / 2, count - count / 2});
      runs.push_back({first, count / 2});
    }
  }
  std::erase_if(*priced, [](const TokenCosts::Word& word) { return word.tokens <= 0.0; });
  co_return !priced->empty();
}

// Words are priced behind a fixed word, as they stand in a prompt.
asio::awaitable<std::optional<TokenCosts>> by_tokenize(TokenCounter& counter) {
  TokenCosts costs;
  costs.method = "tokenize";
  const std::optional<double> base = co_await counter.by_tokenize(word_run(0, 1));
  if (!base) co_return std::nullopt;
  const bool priced = co_await price_words(counter, *base, &costs.words);
  if (!priced) co_return std::nullopt;
  keep_regular_words(&costs.words);
  co_return costs;
}

// A line through two lengths: tokens = overhead + words * slope.
asio::awaitable<std::optional<TokenCosts>> by_usage(TokenCounter& counter) {
  constexpr size_t kShort = 16, kLong = 144;
  const std::optional<double> few = co_await counter.by_usage(word_run(0, kShort));
  if (!few) co_return std::nullopt;
  const std::optional<double> many = co_await counter.by_usage(word_run(kShort, kLong));
  if (!many || *many <= *few) co_return std::nullopt;
  TokenCosts costs;
  costs.method = "usage";
  const double slope = (*many - *few) / static_cast<double>(kLong - kShort);
  costs.overhead = std::max(0.0, *few - slope * static_cast<double>(kShort));
  for (const std::string& word : candidate_words()) costs.words.push_back({word, slope});
  co_return costs;
}

TokenCosts estimate() {
  TokenCosts costs;
  costs.method = "estimate";
  for (const std::string& word : candidate_words()) costs.words.push_back({word, kEstimatedTokensPerWord});
  return costs;
}

// Compares made prompts of the wanted length with the server's count and moves the overhead by the difference.
asio::awaitable<void> adjust_overhead(TokenCounter& counter, double target, TokenCosts* costs) {
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    const std::string prompt = make_words(*costs, target - costs->overhead, static_cast<uint64_t>(round));
    if (prompt.empty()) co_return;
    const std::optional<double> count = co_await counter.by_tokenize(prompt);
    if (!count || *count == target) co_return;
    costs->overhead += *count - target;
  }
}

}  // namespace

asio::awaitable<absl::StatusOr<std::string>> find_model(HttpClient& client, const SweepOptions& options) {
  if (!options.model.empty()) co_return options.model;
  HttpRequest request{"GET", "/v1/models", "", std::min(options.timeout_s, 30.0)};
  const FetchedResponse response = co_await fetch(client, std::move(request));
  const std::string route = options.url + ": GET /v1/models: ";
  if (response.status == 401) co_return absl::UnavailableError(route + "status 401: the server wants --api-key");
  if (!response.ok())
    co_return absl::UnavailableError(route + response.problem() + " (give --model to measure all the same)");
  const json answer = json::parse(response.body, nullptr, false);
  const json data = answer.is_object() ? answer.value("data", json()) : json();
  if (data.is_array() && !data.empty() && data[0].is_object() && data[0].value("id", json()).is_string()) {
    co_return data[0]["id"].get<std::string>();
  }
  co_return absl::UnavailableError(route + "no model in the answer: give --model");
}

asio::awaitable<Calibration> calibrate(HttpClient& client, const SweepOptions& options, const std::string& model) {
  TokenCounter counter(client, options, model);
  Calibration result;
  std::optional<TokenCosts> costs = co_await by_tokenize(counter);
  if (costs) {
    co_await adjust_overhead(counter, static_cast<double>(options.input_tokens), &*costs);
  } else {
    costs = co_await by_usage(counter);
    result.notes.push_back(
        costs ? "no /tokenize: prompt lengths were calibrated against usage and are right on average only"
              : "neither /tokenize nor usage: prompt lengths are estimated as one token per word");
  }
  result.costs = costs ? *std::move(costs) : estimate();
  if (result.costs.overhead >= static_cast<double>(options.input_tokens)) {
    result.notes.push_back(
        fmt::format("--input-len {} is shorter than what every request has besides its prompt ({:.0f} tokens)",
                    options.input_tokens, result.costs.overhead));
  }
  co_return result;
}

}  // namespace assay::sweep
