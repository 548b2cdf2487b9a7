#include "server/sweep/sse.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace assay::sweep {
namespace {

struct Parsed {
  std::vector<std::string> events;
  int64_t malformed = 0;
  bool overflowed = false;
};

// Feeds `stream` in pieces that end at `cuts`.
Parsed parse(const std::string& stream, const std::vector<size_t>& cuts = {}) {
  Parsed parsed;
  SseParser parser([&](std::string_view data) { parsed.events.emplace_back(data); });
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parser.feed(std::string_view(stream).substr(begin, cut - begin));
    begin = cut;
  }
  parser.feed(std::string_view(stream).substr(begin));
  parser.finish();
  parsed.malformed = parser.malformed_lines();
  parsed.overflowed = parser.overflowed();
  return parsed;
}

const std::string kMixed =
    "\xEF\xBB\xBF: hello\n\ndata: one\r\n\r\nevent: x\ndata:two\ndata: lines\n\nid: 4\rdata\rdata: \r\rdata:  "
    "[DONE]\r\n\r\n";
const std::vector<std::string> kMixedEvents = {"one", "two\nlines", "\n", " [DONE]"};

TEST(Sse, LineEndsCommentsFieldsAndByteOrderMark) {
  const Parsed parsed = parse(kMixed);
  EXPECT_EQ(parsed.events, kMixedEvents);
  EXPECT_EQ(parsed.malformed, 0);
}

TEST(Sse, EverySplitInTwoGivesTheSameEvents) {
  for (size_t cut = 0; cut <= kMixed.size(); ++cut) EXPECT_EQ(parse(kMixed, {cut}).events, kMixedEvents) << cut;
}

TEST(Sse, ByteByByteGivesTheSameEvents) {
  std::vector<size_t> cuts(kMixed.size());
  for (size_t i = 0; i < cuts.size(); ++i) cuts[i] = i;
  EXPECT_EQ(parse(kMixed, cuts).events, kMixedEvents);
}

TEST(Sse, LinesThatAreNoFieldAreCounted) {
  const Parsed parsed = parse("{\"choices\":[]}\n\nDATA: x\n\ndata: ok\n\n<html>\n");
  EXPECT_EQ(parsed.malformed, 3);
  EXPECT_EQ(parsed.events, std::vector<std::string>{"ok"});
}

TEST(Sse, MissingLastBlankLineStillDeliversButAnUnfinishedLineDoesNot) {
  EXPECT_EQ(parse("data: a\n\ndata: b\n").events, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse("data: a\n\ndata: b").events, std::vector<std::string>{"a"});
}

TEST(Sse, AnEndlessLineStopsTheParserInsteadOfTheProcess) {
  Parsed parsed;
  SseParser parser([&](std::string_view data) { parsed.events.emplace_back(data); });
  const std::string block(1 << 20, 'x');
  parser.feed("data: ");
  for (int i = 0; i < 9; ++i) parser.feed(block);
  EXPECT_TRUE(parser.overflowed());
  parser.feed("\n\ndata: late\n\n");
  EXPECT_TRUE(parsed.events.empty());
}

// Any bytes, any split: no crash, and the split never changes what is seen.
TEST(Sse, RandomBytesAreSplitInvariant) {
  std::mt19937_64 random(7);
  const std::string alphabet = "data: \n\r:ev{}\"x\xEF\xBB\xBF" + std::string(1, '\0');
  for (int round = 0; round < 2000; ++round) {
    std::string stream(random() % 60, ' ');
    for (char& c : stream) c = alphabet[random() % alphabet.size()];
    std::vector<size_t> cuts;
    for (size_t at = 0; at < stream.size(); at += 1 + random() % 5) cuts.push_back(at);
    const Parsed whole = parse(stream), split = parse(stream, cuts);
    ASSERT_EQ(whole.events, split.events);
    ASSERT_EQ(whole.malformed, split.malformed);
  }
}

}  // namespace
}  // namespace assay::sweep
