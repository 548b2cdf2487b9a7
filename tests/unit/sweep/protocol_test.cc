// The HTTP response parser, the metrics reader and the command line.
#include <gtest/gtest.h>

#include <random>

#include "server/sweep/http_response.h"
#include "server/sweep/metrics_text.h"
#include "server/sweep/options.h"

namespace assay::sweep {
namespace {

struct Response {
  int status = 0;
  std::string type, body, reason;
  bool done = false, failed = false, keep_alive = false;
};

Response parse(const std::string& bytes, size_t piece, bool closed = false) {
  Response response;
  HttpResponseParser parser({[&](int status, std::string_view type) {
                               response.status = status;
                               response.type = type;
                               return true;
                             },
                             [&](std::string_view body) {
                               response.body.append(body);
                               return true;
                             }});
  for (size_t at = 0; at < bytes.size(); at += piece) parser.feed(std::string_view(bytes).substr(at, piece));
  if (closed) parser.feed_end_of_stream();
  response.done = parser.done();
  response.failed = parser.failed();
  response.reason = parser.reason();
  response.keep_alive = parser.keep_alive();
  return response;
}

TEST(HttpResponse, ChunkedBodyInPiecesOfAnySize) {
  const std::string bytes =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n7;note=x\r\n, world\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Response r = parse(bytes, piece);
    EXPECT_TRUE(r.done && r.keep_alive && !r.failed) << piece << " " << r.reason;
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.type, "text/event-stream");
    EXPECT_EQ(r.body, "hello, world") << piece;
  }
}

TEST(HttpResponse, LengthAndCloseDelimitedBodies) {
  const Response fixed = parse("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 7);
  EXPECT_TRUE(fixed.done);
  EXPECT_FALSE(fixed.keep_alive);
  EXPECT_EQ(fixed.status, 429);
  EXPECT_EQ(fixed.body, "{}");
  const std::string open = "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n";
  EXPECT_FALSE(parse(open, 9).done);
  const Response closed = parse(open, 9, true);
  EXPECT_TRUE(closed.done);
  EXPECT_EQ(closed.body, "data: x\n\n");
  EXPECT_FALSE(closed.keep_alive);
}

TEST(HttpResponse, IncompleteIsNotDoneAndNonsenseFails) {
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", 4, true).done);
  EXPECT_FALSE(parse("", 1, true).done);
  for (const char* bytes : {"nonsense\r\n\r\n", "HTTP/1.1 x OK\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    const Response r = parse(bytes, 3);
    EXPECT_TRUE(r.failed) << bytes;
    EXPECT_FALSE(r.reason.empty());
  }
}

TEST(HttpResponse, RandomDamageNeverCrashes) {
  const std::string good =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 2; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    const Response r = parse(bytes, 1 + random() % 20, true);
    ASSERT_FALSE(r.done && r.failed);
  }
}

TEST(Metrics, SumsLabelsAndTakesTheWorst) {
  const MetricsSnapshot before = parse_metrics("a_total 1\n");
  const MetricsSnapshot after = parse_metrics(
      "# HELP a_total x\n# TYPE a_total counter\na_total 5\n"
      "b_total{layer=\"0\",note=\"br}ace \\\" 9\"} 1.5\nb_total{layer=\"1\"} 2 1700000000\n"
      "c_bucket{le=\"+Inf\"} 4\nd_count 0\nprocess_cpu_seconds_total 7\nbad_total NaN\nnonsense\n"
      "assay_meter_worst{layer=\"0\",head=\"1\"} 0.25\nassay_meter_worst{layer=\"1\",head=\"1\"} 0.5\n");
  const std::map<std::string, double> expected = {{"a_total", 4.0}, {"b_total", 3.5}};
  EXPECT_EQ(counter_changes(before, after), expected);
  const std::map<std::string, double> worst = {{"assay_meter_worst", 0.5}};
  EXPECT_EQ(after.worst, worst);
}

std::variant<Command, int> parse_line(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

TEST(Options, WholeCommandLine) {
  const auto parsed =
      parse_line({"sweep", "--url", "http://h:9/v1/", "--concurrency", "1,2,4", "--input-len", "32", "--output-len",
                  "8", "--seconds", "2.5", "--chat", "--goodput", "ttft:500", "tpot:50", "--seed", "7"});
  const auto* command = std::get_if<Command>(&parsed);
  ASSERT_NE(command, nullptr);
  const SweepOptions& o = std::get<SweepOptions>(*command);
  EXPECT_EQ(o.target.host, "h");
  EXPECT_EQ(o.target.port, "9");
  EXPECT_EQ(o.target.base_path, "");
  EXPECT_EQ(o.concurrency, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(o.seconds, 2.5);
  EXPECT_TRUE(o.chat);
  EXPECT_EQ(o.goodput.ttft_ms, 500.0);
  EXPECT_EQ(o.goodput.tpot_ms, 50.0);
  EXPECT_EQ(o.seed, 7u);
}

TEST(Options, DefaultsRunTheWholeLadder) {
  const auto parsed = parse_line({"sweep"});
  const SweepOptions& o = std::get<SweepOptions>(std::get<Command>(parsed));
  EXPECT_EQ(o.concurrency, (std::vector<int>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}));
  EXPECT_FALSE(o.rate_mode());
}

TEST(Options, BadUsageIsRefused) {
  const std::vector<std::vector<std::string>> lines = {{"--url", "localhost:8000"},
                                                       {"--url", "http://:80"},
                                                       {"--url", "http://h:x"},
                                                       {"--url", "http://h:70000"},
                                                       {"--url", "http://h /x"},
                                                       {"--concurrency", "0"},
                                                       {"--concurrency", "a"},
                                                       {"--request-rate", "0"},
                                                       {"--request-rate", "2", "--concurrency", "1,2"},
                                                       {"--burstiness", "0"},
                                                       {"--seconds", "1", "--requests-per-level", "2"},
                                                       {"--shared-prefix-len", "1024"},
                                                       {"--goodput", "ttft"},
                                                       {"--goodput", "speed:3"},
                                                       {"--goodput", "tpot:-1"},
                                                       {"--dataset", "/does/not/exist"},
                                                       {"--chat", "--completions"},
                                                       {"--grpc"},
                                                       {"compare"}};
  for (std::vector<std::string> line : lines) {
    line.insert(line.begin(), "sweep");
    const auto parsed = parse_line(line);
    const int* status = std::get_if<int>(&parsed);
    ASSERT_NE(status, nullptr) << line[1];
    EXPECT_EQ(*status, 2) << line[1];
  }
}

TEST(Options, UrlForms) {
  EXPECT_EQ(parse_url("http://a")->port, "80");
  EXPECT_EQ(parse_url("https://a")->port, "443");
  EXPECT_TRUE(parse_url("https://a")->tls);
  EXPECT_EQ(parse_url("http://[::1]:8000")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:8000")->port, "8000");
  EXPECT_EQ(parse_url("http://a:1/proxy/v1")->base_path, "/proxy");
}

}  // namespace
}  // namespace assay::sweep
