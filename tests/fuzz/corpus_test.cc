// A fuzz driver over its corpus, and over damaged copies of it. Linked once with each driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& bytes) { LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()); }

std::vector<std::string> corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ASSAY_FUZZ_CORPUS)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> all;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return all;
}

std::string damaged(std::string bytes, std::mt19937& random) {
  constexpr std::string_view kSigns = "\"{}[]:,0a-\\\r\n \xFF%;";
  for (size_t n = 1 + random() % 3; n > 0; --n) bytes[random() % bytes.size()] = kSigns[random() % kSigns.size()];
  if (random() % 8 == 0) bytes.resize(random() % bytes.size());
  return bytes;
}

TEST(Fuzz, CorpusAndDamagedCopies) {
  std::mt19937 random(11);
  const std::vector<std::string> all = corpus();
  EXPECT_GE(all.size(), 10u);
  for (const std::string& bytes : all) {
    run(bytes);
    for (int round = 0; round < 100 && !bytes.empty(); ++round) run(damaged(bytes, random));
  }
}

}  // namespace
