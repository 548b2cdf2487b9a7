// What a scrape says.
#include "server/ops/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "server/ops/doctor.h"
#include "server/ops/live_page.h"
#include "server/ops/log.h"
#include "server/ops/process_stats.h"

namespace assay {
namespace {

// Value of the sample whose line begins with `start`, or nothing.
std::string sample(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(start, 0) == 0) return line.substr(line.rfind(' ') + 1);
  }
  return "(none)";
}

SequenceReport report(double queue, double prefill, double decode) {
  SequenceReport result;
  result.usage.prompt_tokens = 100;
  result.usage.cached_tokens = 64;
  result.usage.completion_tokens = 11;
  result.usage.queue_s = queue;
  result.usage.prefill_s = prefill;
  result.usage.decode_s = decode;
  result.end_to_end_s = queue + prefill + decode;
  return result;
}

TEST(Metrics, AliasesHaveTheSameValues) {
  Metrics metrics("tiny");
  EngineStats stats;
  stats.num_running = 3;
  stats.pages_total = 10;
  stats.pages_in_use = 4;
  stats.finished_total = {5, 6, 7, 8};
  stats.step_tokens[0] = 2;
  stats.step_tokens.back() = 1;
  stats.step_tokens_sum = 9002;
  metrics.attach_engine([stats] { return stats; }, PoolInfo{}, EngineConfig{});
  const std::string text = metrics.text(false);
  EXPECT_EQ(sample(text, "assay_num_requests_running{model_name=\"tiny\"}"), "3");
  EXPECT_EQ(sample(text, "vllm:num_requests_running{model_name=\"tiny\",engine=\"0\"}"), "3");
  EXPECT_EQ(sample(text, "vllm:kv_cache_usage_perc{"), "0.4");
  EXPECT_EQ(sample(text, "vllm:request_success_total{finished_reason=\"length\""), "6");
  EXPECT_EQ(sample(text, "vllm:iteration_tokens_total_bucket{model_name=\"tiny\",engine=\"0\",le=\"8192.0\"}"), "2");
  EXPECT_EQ(sample(text, "vllm:iteration_tokens_total_count{"), "3");
}

TEST(Metrics, Case96HistogramsAreInSecondsAndReachFar) {
  Metrics metrics("m");
  metrics.first_token(0.7);
  metrics.sequence_finished(report(0.1, 0.6, 900.0));
  const std::string text = metrics.text(false);
  EXPECT_EQ(sample(text, "assay_time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.5\"}"), "0");
  EXPECT_EQ(sample(text, "assay_time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.75\"}"), "1");
  EXPECT_EQ(sample(text, "assay_time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"}"), "1");
  EXPECT_EQ(sample(text, "assay_time_to_first_token_seconds_count{"), "1");
  EXPECT_EQ(sample(text, "assay_e2e_request_latency_seconds_bucket{model_name=\"m\",le=\"960.0\"}"), "1");
  EXPECT_EQ(sample(text, "assay_e2e_request_latency_seconds_bucket{model_name=\"m\",le=\"480.0\"}"), "0");
  EXPECT_EQ(sample(text, "assay_request_time_per_output_token_seconds_sum{"), "90");
  EXPECT_EQ(sample(text, "assay_request_prefill_kv_computed_tokens_sum{"), "36");
}

TEST(Metrics, OpenMetricsForm) {
  Metrics metrics("m");
  metrics.rejected("queue_full");
  const std::string text = metrics.text(true);
  EXPECT_TRUE(text.ends_with("# EOF\n"));
  EXPECT_NE(text.find("# TYPE assay_requests_rejected counter\n"), std::string::npos);
  EXPECT_EQ(sample(text, "assay_requests_rejected_total{reason=\"queue_full\""), "1");
  EXPECT_NE(metrics.text(false).find("# TYPE assay_requests_rejected_total counter\n"), std::string::npos);
}

TEST(Metrics, MethodsAreNotTheClientsChoice) {
  Metrics metrics("m");
  for (const char* method : {"POST", "BREW", "X1", "X2"}) metrics.http_request({method, "/v1/models", 405, 0.001});
  const std::string text = metrics.text(false);
  EXPECT_EQ(sample(text, "http_requests_total{handler=\"/v1/models\",method=\"other\",status=\"405\"}"), "3");
  EXPECT_EQ(text.find("BREW"), std::string::npos);
}

TEST(Metrics, LabelValuesAreEscaped) {
  const std::string text = Metrics("a\"b\\c\nd").text(false);
  EXPECT_NE(text.find("model_name=\"a\\\"b\\\\c\\nd\""), std::string::npos);
}

TEST(Process, NumbersArePlausible) {
  const ProcessStats stats = read_process_stats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GT(stats.open_fds, 2);
  EXPECT_GT(stats.max_fds, stats.open_fds);
  EXPECT_GE(stats.threads, 1);
  EXPECT_GT(stats.start_time_s, 1.5e9);
}

TEST(Log, FieldsFromOutsideStayOnOneLine) {
  EXPECT_EQ(log_field("id", "abc"), "id=abc");
  EXPECT_EQ(log_field("id", "a b\n\"c\""), "id=\"a b\\x0a\\\"c\\\"\"");
  EXPECT_EQ(log_field("id", ""), "id=\"\"");
  EXPECT_LT(log_field("id", std::string(10'000, 'x')).size(), 320u);
}

TEST(Doctor, FindsAMissingModelAndGoodMachineParts) {
  ServeConfig config;
  config.model = "/no/such/folder";
  config.port = 0;
  const std::string text = checks_text(run_checks(config));
  EXPECT_NE(text.find("BAD   model folder"), std::string::npos);
  EXPECT_NE(text.find("memory"), std::string::npos);
  EXPECT_NE(text.find("good  port 0"), std::string::npos);
}

TEST(LivePage, IsSelfContained) {
  const std::string page = live_page();
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
}

}  // namespace
}  // namespace assay
