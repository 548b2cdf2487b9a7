#include "engine/weights/safetensors.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/weights/safetensors_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace assay {
namespace {

using testing::HasSubstr;

std::string problem_of(const std::string& file) {
  const auto entries = parse_safetensors(bytes_of(file), "w.safetensors");
  return entries.ok() ? "no problem" : std::string(entries.status().message());
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// The problem of a header with these tensors over `data_bytes` of data.
std::string header_problem(const std::string& tensors, size_t data_bytes) {
  return problem_of(safetensors_file("{" + tensors + "}", data_bytes));
}

TEST(Safetensors, ReadsTensorsInDataOrder) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + tensor("b", "F32", "[2]", "[12,20]") + "," +
                             tensor("a", "BF16", "[2,3]", "[0,12]") + "," + tensor("none", "F16", "[0,7]", "[12,12]") +
                             "," + tensor("scalar", "I8", "[]", "[20,21]") + "}";
  const std::string file = safetensors_file(header, 21);
  const auto entries = parse_safetensors(bytes_of(file), "w");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 4u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].dtype, "BF16");
  EXPECT_THAT((*entries)[0].shape, testing::ElementsAre(2, 3));
  EXPECT_EQ((*entries)[0].offset, 8 + header.size());
  EXPECT_EQ((*entries)[2].name, "b");
  EXPECT_EQ((*entries)[2].offset, 8 + header.size() + 12);
  EXPECT_EQ((*entries)[2].bytes, 8u);
}

TEST(Safetensors, RefusesBadHeaderLengths) {
  EXPECT_THAT(problem_of(""), HasSubstr("too short"));
  EXPECT_THAT(problem_of("1234567"), HasSubstr("too short"));
  EXPECT_THAT(problem_of(std::string(4096, '\0')), HasSubstr("header length 0"));
  std::string bomb = safetensors_file("{}", 0);
  const uint64_t huge = uint64_t{1} << 63;
  std::memcpy(bomb.data(), &huge, 8);
  EXPECT_THAT(problem_of(bomb), HasSubstr("impossible"));
  const uint64_t beyond = 50'000'000;
  std::memcpy(bomb.data(), &beyond, 8);
  EXPECT_THAT(problem_of(bomb), HasSubstr("shorter than its header"));
}

TEST(Safetensors, RefusesBadJson) {
  EXPECT_THAT(problem_of(safetensors_file("{\"a\":", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(problem_of(safetensors_file("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(problem_of(safetensors_file("{\"a\":1}", 0)), HasSubstr("not an object"));
  EXPECT_THAT(problem_of(safetensors_file("{\"a\":{}}", 0)), HasSubstr("no dtype"));
  EXPECT_THAT(problem_of(safetensors_file(std::string(50000, '['), 0)), HasSubstr("deep"));
  EXPECT_THAT(problem_of(safetensors_file("{\"\xff\":{}}", 0)), HasSubstr("not valid JSON"));
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string one = tensor("a", "F32", "[1]", "[0,4]");
  EXPECT_THAT(header_problem(one + "," + one, 4), HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(header_problem("\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}", 4),
              HasSubstr("\"dtype\" occurs twice"));
}

TEST(Safetensors, RefusesBadShapes) {
  EXPECT_THAT(header_problem(tensor("a", "F32", "[-1]", "[0,4]"), 4), HasSubstr("non-negative"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1.5]", "[0,4]"), 4), HasSubstr("non-negative"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "7", "[0,4]"), 4), HasSubstr("shape"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[4294967296,4294967296]", "[0,4]"), 4), HasSubstr("too large"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[18446744073709551615]", "[0,4]"), 4), HasSubstr("too large"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[2]", "[0,4]"), 4), HasSubstr("shape of 8 bytes but 4"));
  EXPECT_THAT(header_problem(tensor("a", "Q4", "[1]", "[0,4]"), 4), HasSubstr("unknown dtype \"Q4\""));
}

TEST(Safetensors, RefusesBadOffsets) {
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[4,0]"), 4), HasSubstr("ends before it begins"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[-4,0]"), 4), HasSubstr("data_offsets"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[0]"), 4), HasSubstr("data_offsets"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[2]", "[0,8]"), 7), HasSubstr("truncated"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[2,6]"), 6),
              HasSubstr("overlaps"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[0,4]"), 4),
              HasSubstr("overlaps"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[6,10]"), 10),
              HasSubstr("gap"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[2,6]"), 6), HasSubstr("gap"));
  EXPECT_THAT(header_problem(tensor("a", "F32", "[1]", "[0,4]"), 9), HasSubstr("5 bytes belong to no tensor"));
}

// Every way to cut a good file off, and to change one byte of it, ends in an answer.
TEST(Safetensors, SurvivesCutsAndFlips) {
  const std::string file = safetensors_file(
      "{" + tensor("a", "BF16", "[2,3]", "[0,12]") + "," + tensor("b", "F32", "[2]", "[12,20]") + "}", 20);
  ASSERT_EQ(problem_of(file), "no problem");
  for (size_t size = 0; size < file.size(); ++size) EXPECT_NE(problem_of(file.substr(0, size)), "no problem") << size;
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      problem_of(changed);
    }
  }
}

TEST(Safetensors, FuzzCorpus) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ASSAY_SOURCE_DIR) + "/tests/fuzz/corpus/safetensors")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(data.data()), data.size()), 0);
    ++files;
  }
  EXPECT_GE(files, 10);
}

}  // namespace
}  // namespace assay
