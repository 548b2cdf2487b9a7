#include "server/text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace assay {
namespace {

struct Result {
  std::string sent;
  std::optional<size_t> matched;
  bool operator==(const Result&) const = default;
};

Result feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, bool include = false) {
  StopStrings matcher(stops, include);
  Result result;
  for (const std::string& piece : pieces) {
    const StopStrings::Output output = matcher.push(piece);
    result.sent += output.text;
    if (output.matched) result.matched = output.matched;
  }
  result.sent += matcher.finish();
  return result;
}

TEST(StopStrings, CutsExactlyBeforeAMatchThatSpansPieces) {
  StopStrings matcher({"beta gamma"}, false);
  EXPECT_EQ(matcher.push("alpha be").text, "alpha ");
  EXPECT_EQ(matcher.push("ta").text, "");
  const StopStrings::Output last = matcher.push(" gamma and more");
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.matched, 0u);
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more").text, "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopStrings, MatchInsideOnePiece) {
  EXPECT_EQ(feed({"lo"}, {"dolor sit"}), (Result{"do", 0}));
  EXPECT_EQ(feed({"x", "lo"}, {"dolor sit"}, true), (Result{"dolo", 1}));
}

TEST(StopStrings, HeldTailIsReleased) {
  EXPECT_EQ(feed({"\n"}, {"Mars?", "\n"}), (Result{"Mars?", 0}));
  EXPECT_EQ(feed({"beta gamma"}, {"alpha beta ga"}), (Result{"alpha beta ga", std::nullopt}));
}

TEST(StopStrings, LongStopWithoutPrefixHoldsNothing) {
  StopStrings matcher({"ZZZZZZZZZZZZZZZZZZZZ"}, false);
  for (const std::string piece : {"one", " two", " three"}) EXPECT_EQ(matcher.push(piece).text, piece);
  EXPECT_EQ(matcher.push("Z").text, "");
  EXPECT_EQ(matcher.push("a").text, "Za");
}

TEST(StopStrings, HoldsTheLongestSuffixThatIsAProperPrefix) {
  StopStrings matcher({"aab", "abc"}, false);
  EXPECT_EQ(matcher.push("aaaa").text, "aa");
  EXPECT_EQ(matcher.push("x").text, "aax");
  EXPECT_EQ(matcher.push("aab").matched, 0u);
}

TEST(StopStrings, TheMatchThatEndsFirstWins) {
  EXPECT_EQ(feed({"beta gamma delta", "gamma"}, {"beta gamma delta"}), (Result{"beta ", 1}));
  EXPECT_EQ(feed({"gamma", "beta gamma"}, {"a beta gamma"}), (Result{"a ", 1}));
  EXPECT_EQ(feed({"b", "b"}, {"abc"}), (Result{"a", 0}));
}

TEST(StopStrings, NoneAndEmptyStopNothing) {
  EXPECT_EQ(feed({}, {"some", " text"}), (Result{"some text", std::nullopt}));
  EXPECT_EQ(feed({""}, {"some", " text"}), (Result{"some text", std::nullopt}));
}

TEST(StopStrings, CharactersStayWhole) {
  StopStrings matcher({"é!"}, false);
  EXPECT_EQ(matcher.push("caf").text, "caf");
  EXPECT_EQ(matcher.push("é").text, "");
  EXPECT_EQ(matcher.push("è").text, "éè");
}

TEST(StopStrings, ManyStopStrings) {
  std::vector<std::string> stops;
  for (int i = 0; i < 500; ++i) stops.push_back("<" + std::to_string(i) + ">");
  EXPECT_EQ(feed(stops, {"a <49", "9", "> b"}), (Result{"a ", 499}));
}

// Says it the slow way: at every end position, the longest stop string that ends there.
Result by_hand(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool here = text.substr(0, end).ends_with(stops[i]);
      if (here && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStrings, AgreesWithTheSlowSearchHoweverTheTextIsCut) {
  std::mt19937 random(7);
  const auto word = [&](int longest) {
    std::string text;
    for (int n = 1 + static_cast<int>(random() % longest); n > 0; --n) text += "ab "[random() % 3];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) stops.push_back(word(6));
    const std::string text = word(40);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 5));
      at += pieces.back().size();
    }
    EXPECT_EQ(feed(stops, pieces), by_hand(stops, text)) << text;
  }
}

}  // namespace
}  // namespace assay
