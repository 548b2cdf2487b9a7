// The self-check itself: it finds nothing here, its trials come close to the bounds, and a violation would not be missed.
#include "server/verify/verify.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "engine/verify/tally.h"

namespace assay {
namespace {

TEST(Verify, FindsNoViolationAndComesClose) {
  const VerifyReport report = run_verify({.trials = 20'000, .seed = 3});
  std::map<std::string, VerifyCheck> by_name;
  for (const VerifyCheck& check : report.checks) {
    EXPECT_EQ(check.violations, 0) << check.name;
    EXPECT_GT(check.checks, 0) << check.name;
    EXPECT_TRUE(by_name.emplace(check.name, check).second) << check.name;
  }
  EXPECT_TRUE(report.ok());
  for (const char* name : {"bound.g", "bound.f", "bound.tanh", "bound.page", "certified.witness"}) {
    EXPECT_GT(by_name.at(name).tightest, 0.9) << name << ": trials that stay far from the bound show nothing";
  }
  for (const char* name : {"counterexample", "rotation", "balance", "certified.rho", "witcert.rho", "witcert.step",
                           "observed.kivi-2", "observed.fp8-e4m3", "meter"}) {
    EXPECT_EQ(by_name.count(name), 1u) << name;
  }
}

TEST(Verify, TheSameSeedRepeatsTheTrials) {
  const auto tightest = [](uint64_t seed) {
    std::vector<double> values;
    for (const VerifyCheck& check : run_verify({.trials = 500, .seed = seed}).checks) values.push_back(check.tightest);
    return values;
  };
  EXPECT_EQ(tightest(5), tightest(5));
  EXPECT_NE(tightest(5), tightest(6));
}

TEST(Verify, AViolationCounts) {
  VerifyCheck check{"name", "statement"};
  count(check, 0.5L, 0.5L);
  EXPECT_EQ(check.violations, 0);
  count(check, 0.5000001L, 0.5L);
  count(check, std::numeric_limits<long double>::quiet_NaN(), 0.5L);
  count(check, 0.5L, std::numeric_limits<long double>::quiet_NaN());
  EXPECT_EQ(check.violations, 3);
  EXPECT_FALSE(VerifyReport{{check}}.ok());
  EXPECT_FALSE(VerifyReport{}.ok());
  EXPECT_FALSE((VerifyReport{{VerifyCheck{"empty", ""}}}.ok())) << "a check that checked nothing is no proof";
}

TEST(VerifyCommand, PrintsCountsAndJson) {
  VerifyReport report;
  report.checks = {{"a", "x <= y", 10, 0, 0.5}, {"b", "u <= v", 20, 1, 1.5}};
  EXPECT_NE(verify_text(report).find("BAD: 1 violations in 30 checks"), std::string::npos);
  const auto json = nlohmann::json::parse(verify_json({.trials = 7, .seed = 9}, report));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["trials"], 7);
  EXPECT_EQ(json["checks"][1]["violations"], 1);
}

int command(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return run_verify_command(static_cast<int>(argv.size()), argv.data());
}

TEST(VerifyCommand, ExitStatus) {
  EXPECT_EQ(command({"verify", "--trials", "200", "--json"}), 0);
  EXPECT_EQ(command({"verify", "--help"}), 0);
  for (const char* wrong : {"0", "-1", "many", "1e5", ""}) EXPECT_EQ(command({"verify", "--trials", wrong}), 2) << wrong;
  EXPECT_EQ(command({"verify", "--trials"}), 2);
  EXPECT_EQ(command({"verify", "--quick"}), 2);
}

}  // namespace
}  // namespace assay
