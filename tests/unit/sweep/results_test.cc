// The forms of a result: JSON that reads back, CSV of equal width, warnings, the figure, the comparison.
#include "server/sweep/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "server/sweep/compare.h"
#include "server/sweep/frontier.h"
#include "server/sweep/svg.h"

namespace assay::sweep {
namespace {

LevelResult level(int concurrency, double tokens_per_s, double tpot_ms, double ttft_ms) {
  LevelResult level;
  level.concurrency = concurrency;
  LevelSummary& s = level.summary;
  s.sent = s.completed = 4;
  s.kinds["completed"] = 4;
  s.duration_s = 2.0;
  s.window = {0.0, 1.9, concurrency};
  s.output_tokens = 400;
  s.output_tokens_per_s = tokens_per_s;
  s.tpot_ms = describe({tpot_ms});
  s.ttft_ms = describe({ttft_ms});
  s.itl_ms = s.e2el_ms = s.send_delay_ms = describe({});
  level.client.lag_ms = describe({});
  return level;
}

RunResult run(const std::string& label) {
  RunResult run;
  run.options.label = label;
  run.model = "tiny";
  run.levels = {level(1, 100, 10, 20), level(8, 640, 12.5, 80)};
  return run;
}

TEST(Results, JsonHoldsTheFiguresAndNullForNone) {
  const nlohmann::ordered_json json = to_json(run("a"));
  EXPECT_EQ(json["levels"][1]["throughput"]["output_tokens_per_s"], 640.0);
  EXPECT_EQ(json["levels"][1]["tpot_ms"]["p99"], 12.5);
  EXPECT_TRUE(json["levels"][0]["itl_ms"]["mean"].is_null());
  EXPECT_TRUE(json["levels"][0]["goodput"].is_null());
  EXPECT_TRUE(json["server"]["version"].is_null());
  EXPECT_EQ(json["levels"][0]["warnings"].size(), 0u);
  EXPECT_EQ(json.dump().find("api_key"), std::string::npos);
}

TEST(Results, CsvHasAsManyCellsAsColumns) {
  const std::string csv = to_csv(run("a"));
  std::vector<std::string> lines;
  std::istringstream stream(csv);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(commas(lines[0]), commas(lines[1]));
  EXPECT_EQ(commas(lines[0]), commas(lines[2]));
  EXPECT_TRUE(lines[2].starts_with("8,8,,4,4,0,0,0,2,1.9,0,400,0,0,640,"));
}

TEST(Results, WarningsNameWhatIsWrong) {
  LevelResult bad = level(8, 100, 10, 20);
  bad.summary.sent = 6;
  bad.summary.failed = 2;
  bad.summary.kinds["http_401"] = 2;
  bad.summary.kind_examples["http_401"] = "no key";
  bad.summary.missing_usage = 1;
  bad.summary.window.end_s = 0.5;
  bad.client.cpu_share = 0.93;
  EXPECT_THAT(level_warnings(bad),
              testing::ElementsAre("2 x http_401: no key", "client bottleneck: the client used 93 % of its core",
                                   "1 completed without usage: their tokens are counted from the chunks",
                                   "the steady window is only 25 % of the level: use more requests"));
  LevelResult disagreeing = level(1, 100, 10, 20);
  disagreeing.metrics_change["vllm:generation_tokens_total"] = 399;
  EXPECT_THAT(level_warnings(disagreeing),
              testing::ElementsAre("the server counted 399 generated tokens, the client 400"));
  ClientLoad late;
  late.lag_ms = describe(std::vector<double>(50, 30.0));
  EXPECT_EQ(late.bottleneck(), "the client's event loop ran 30 ms late (p99): other work shares its core");
}

TEST(Results, TableShowsEveryLevelAndNote) {
  RunResult r = run("a");
  r.notes = {"prompt lengths are estimated"};
  r.server.notes = {"no /metrics: status 404"};
  const std::string table = to_table(r);
  EXPECT_THAT(table, testing::HasSubstr("640.0"));
  EXPECT_THAT(table,
              testing::HasSubstr("note: prompt lengths are estimated\nnote: server has no /metrics: status 404\n"));
  EXPECT_EQ(table.find("nan"), std::string::npos);
}

TEST(Compare, FilesRoundTripIntoCurvesAndRatios) {
  const std::string folder = testing::TempDir() + "/assay_sweep_compare";
  RunResult second = run("b");
  second.levels[1].summary.output_tokens_per_s = 320;
  ASSERT_TRUE(write_results(run("a"), folder + "/a").ok());
  ASSERT_TRUE(write_results(second, folder + "/b").ok());
  const auto runs = load_runs({folder + "/a/results.json", folder + "/b/results.json", folder + "/b/results.json"});
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ((*runs)[2].label, "b #3");
  EXPECT_EQ((*runs)[0].points[1].output_tokens_per_s, 640.0);
  EXPECT_THAT(comparison_table(*runs), testing::HasSubstr("320.00 (0.50x)"));
  EXPECT_EQ(run_compare({{folder + "/a/results.json", folder + "/b/results.json"}, folder}), 0);
  EXPECT_THAT(*read_file(folder + "/frontier.svg"), testing::HasSubstr("</svg>"));
  ASSERT_TRUE(write_file(folder + "/other.json", "{\"label\":3}").ok());
  EXPECT_THAT(std::string(load_runs({folder + "/other.json"}).status().message()),
              testing::HasSubstr("not the results of a sweep"));
  EXPECT_EQ(run_compare({{folder + "/other.json"}, ""}), 1);
  EXPECT_EQ(run_compare({{folder + "/missing.json"}, ""}), 1);
  std::filesystem::remove_all(folder);
}

TEST(Frontier, EscapesLabelsAndSurvivesEmptyRuns) {
  FrontierRun run{"<a & \"b\">", "", {{"1", 10.0, 5.0, 5.0, 5.0, 5.0, false}}};
  const std::string svg = draw_frontier({run, FrontierRun{"empty", "", {}}});
  EXPECT_THAT(svg, testing::HasSubstr("&lt;a &amp; &quot;b&quot;&gt;"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(draw_frontier({FrontierRun{"x", "", {{"1", 0.0, none, none, none, none, false}}}}).find("nan"),
            std::string::npos);
}

TEST(Axis, NiceTicks) {
  EXPECT_EQ(Axis(0, 94, false, 0, 100).ticks(), (std::vector<double>{0, 20, 40, 60, 80}));
  EXPECT_THAT(Axis(3, 900, true, 0, 100).ticks(), testing::ElementsAre(5, 10, 20, 50, 100, 200, 500));
  EXPECT_DOUBLE_EQ(Axis(0, 100 / 1.06, false, 50, 150).pixel(50), 100.0);
  EXPECT_EQ(Axis(0, 20000, false, 0, 100).tick_label(5000), "5k");
  EXPECT_EQ(Axis(0, 6000, false, 0, 100).tick_label(5000), "5000");
  EXPECT_EQ(Axis(0, 1, false, 0, 100).tick_label(0.3), "0.3");
}

}  // namespace
}  // namespace assay::sweep
