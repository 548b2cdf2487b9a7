// `assay sweep` from its command line to its files, against a stub with the side routes of a whole server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "server/sweep/results.h"
#include "server/sweep/sweep.h"
#include "tests/unit/sweep/stub_server.h"

namespace assay::sweep {
namespace {

using nlohmann::json;

// Counts a word as one token, "mountain" as two, and two tokens more for every prompt. `side_routes`: /tokenize,
// /version, ...
class WordServer {
 public:
  explicit WordServer(bool side_routes)
      : side_routes_(side_routes), stub_([this](const StubRequest& r) { return answer(r); }) {}

  std::string url() const { return stub_.url(); }
  std::vector<json> requests() {  // the streamed ones
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  static int count(const std::string& prompt) {
    int tokens = 2;
    std::istringstream words(prompt);
    for (std::string word; words >> word;) tokens += word == "mountain" ? 2 : 1;
    return tokens;
  }

 private:
  static StubReply once(int status, const std::string& body) {
    return {{{0, http_reply(status, "application/json", body)}}};
  }

  static std::string prompt_of(const json& body) {
    return body.contains("prompt") ? body["prompt"].get<std::string>()
                                   : body["messages"][0]["content"].get<std::string>();
  }

  StubReply answer(const StubRequest& request) {
    const json body = json::parse(request.body, nullptr, false);
    if (request.path == "/v1/models") return once(200, R"({"data":[{"id":"word-model"}]})");
    if (request.path == "/v1/completions" || request.path == "/v1/chat/completions") return complete(body);
    if (!side_routes_) return once(404, "{}");
    if (request.path == "/tokenize") return once(200, json{{"count", count(prompt_of(body))}}.dump());
    if (request.path == "/version") return once(200, R"({"version":"1.2.3"})");
    if (request.path == "/server_info") return once(200, R"({"pool":{"pool":"exact"}})");
    if (request.path == "/metrics") return {{{0, http_reply(200, "text/plain", metrics())}}};
    return once(404, "{}");
  }

  StubReply complete(const json& body) {
    const int prompt_tokens = count(prompt_of(body));
    if (!body.value("stream", false)) {
      return once(
          200, json{{"choices", json::array()}, {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", 1}}}}
                   .dump());
    }
    const std::lock_guard lock(mutex_);
    requests_.push_back(body);
    const int tokens = body["max_tokens"].get<int>();
    prompt_total_ += prompt_tokens;
    generation_total_ += tokens;
    return token_stream(tokens, 2.0, 1.0, prompt_tokens);
  }

  std::string metrics() {
    return "vllm:prompt_tokens_total{model_name=\"w\"} " + std::to_string(prompt_total_) +
           "\nvllm:generation_tokens_total{model_name=\"w\"} " + std::to_string(generation_total_) +
           "\nassay_meter_worst{layer=\"0\",head=\"0\"} 0.125\n";
  }

  const bool side_routes_;
  std::mutex mutex_;
  std::vector<json> requests_;
  int64_t prompt_total_ = 0, generation_total_ = 0;
  StubServer stub_;
};

class SweepRunTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int sweep(const std::string& url, std::vector<std::string> flags) {
    std::vector<std::string> words = {"sweep", "--url", url, "--output", folder_};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return run_sweep(static_cast<int>(argv.size()), argv.data());
  }

  json results() { return json::parse(*read_file(folder_ + "/results.json")); }

  const std::string folder_ =
      testing::TempDir() + "/assay_sweep_run_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(SweepRunTest, TotalsEqualTheServersCountersAndPromptsHaveTheirLength) {
  WordServer server(true);
  ASSERT_EQ(sweep(server.url(), {"--concurrency", "1,2,4", "--requests-per-level", "8", "--input-len", "40",
                                 "--output-len", "6", "--warmup", "2", "--goodput", "ttft:10000"}),
            0);
  const json r = results();
  EXPECT_EQ(r["label"], "word-model");
  EXPECT_EQ(r["prompt_method"], "tokenize");
  EXPECT_EQ(r["notes"].size(), 0u);
  EXPECT_EQ(r["server"]["version"]["version"], "1.2.3");
  EXPECT_EQ(r["server"]["server_info"]["pool"]["pool"], "exact");
  ASSERT_EQ(r["levels"].size(), 3u);
  for (const json& level : r["levels"]) {
    EXPECT_EQ(level["requests"]["completed"], 8);
    EXPECT_EQ(level["tokens"]["input"], 8 * 40);
    EXPECT_EQ(level["tokens"]["output"], 8 * 6);
    EXPECT_EQ(level["server_metrics_change"]["vllm:prompt_tokens_total"], 8 * 40.0);
    EXPECT_EQ(level["server_metrics_change"]["vllm:generation_tokens_total"], 8 * 6.0);
    EXPECT_EQ(level["server_meter_worst"]["assay_meter_worst"], 0.125);
    EXPECT_EQ(level["goodput"]["good_requests"], 8);
  }
  std::set<std::string> prompts, salts;
  for (const json& request : server.requests()) {
    prompts.insert(request["prompt"].get<std::string>());
    salts.insert(request["cache_salt"].get<std::string>());
    EXPECT_EQ(request["ignore_eos"], true);
    EXPECT_EQ(request["stream_options"]["include_usage"], true);
  }
  EXPECT_EQ(prompts.size(), 3u * (8 + 2));  // warm-ups have prompts of their own too
  EXPECT_EQ(salts.size(), 1u);
  EXPECT_THAT(*read_file(folder_ + "/results.csv"), testing::HasSubstr("\n4,4,,8,8,0,0,0,"));
  EXPECT_THAT(*read_file(folder_ + "/frontier.svg"), testing::HasSubstr("word-model"));
}

TEST_F(SweepRunTest, WithoutSideRoutesItCalibratesAgainstUsageAndSaysWhatIsMissing) {
  WordServer server(false);
  ASSERT_EQ(sweep(server.url(), {"--chat", "--concurrency", "2", "--requests-per-level", "4", "--input-len", "64",
                                 "--output-len", "3", "--openai-fields-only"}),
            0);
  const json r = results();
  EXPECT_EQ(r["prompt_method"], "usage");
  EXPECT_NEAR(r["levels"][0]["tokens"]["input"].get<double>(), 4 * 64.0, 8.0);
  EXPECT_EQ(r["server"]["notes"].size(), 3u);
  EXPECT_GE(r["notes"].size(), 1u);  // calibrated; perhaps also that an average is not the exact length
  for (const json& request : server.requests()) {
    EXPECT_FALSE(request.contains("ignore_eos") || request.contains("cache_salt") ||
                 request.contains("return_token_ids"));
    EXPECT_TRUE(request.contains("messages"));
  }
}

TEST_F(SweepRunTest, RateModeSendsTheArrivalsOfItsRates) {
  WordServer server(true);
  ASSERT_EQ(sweep(server.url(), {"--request-rate", "40,80", "--requests-per-level", "20", "--input-len", "16",
                                 "--output-len", "2", "--warmup", "0"}),
            0);
  const json r = results();
  ASSERT_EQ(r["levels"].size(), 2u);
  EXPECT_EQ(r["levels"][0]["level"], "40/s");
  EXPECT_EQ(r["levels"][1]["request_rate"], 80.0);
  EXPECT_EQ(r["levels"][1]["requests"]["completed"], 20);
  const double slow = r["levels"][0]["throughput"]["offered_requests_per_s"].get<double>();
  EXPECT_NEAR(r["levels"][1]["throughput"]["offered_requests_per_s"].get<double>(), 2 * slow, 1e-6);  // same seed
}

TEST_F(SweepRunTest, ADatasetIsSentAsItIs) {
  WordServer server(true);
  ASSERT_TRUE(
      write_file(folder_ + "/set.jsonl", "{\"prompt\":\"one two\",\"max_tokens\":4}\n{\"prompt\":\"three\"}\n").ok());
  ASSERT_EQ(sweep(server.url(), {"--dataset", folder_ + "/set.jsonl", "--concurrency", "1", "--requests-per-level", "4",
                                 "--output-len", "2", "--warmup", "0"}),
            0);
  const std::vector<json> requests = server.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0]["prompt"], "one two");
  EXPECT_EQ(requests[0]["max_tokens"], 4);
  EXPECT_EQ(requests[3]["prompt"], "three");
  EXPECT_EQ(results()["levels"][0]["tokens"]["output"], 2 * (4 + 2));
}

TEST_F(SweepRunTest, AnUnreachableServerIsASentenceAndAStatus) {
  const std::string url = "http://127.0.0.1:" + std::to_string(closed_port());
  EXPECT_EQ(sweep(url, {"--concurrency", "1"}), 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/results.json"));
  // With the model named it measures all the same, and shows what it found.
  EXPECT_EQ(sweep(url, {"--model", "m", "--concurrency", "1", "--requests-per-level", "3", "--warmup", "0"}), 1);
  EXPECT_EQ(results()["levels"][0]["requests"]["kinds"]["connection_refused"], 3);
}

}  // namespace
}  // namespace assay::sweep
