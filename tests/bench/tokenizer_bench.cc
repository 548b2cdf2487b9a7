// Speed of encoding and decoding: megabytes of text a second on one core.
//   tokenizer_bench FOLDER [TEXT_FILE] [benchmark flags]
// FOLDER holds a tokenizer.json; without TEXT_FILE an own paragraph is repeated to 300 kB.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "server/text/tokenizer.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr std::string_view kParagraph =
    "The miller's daughter counted a hundred and forty-four sacks of flour before the rain came over the hill. She "
    "wrote the sum "
    "on the wall, as her mother had done, and went down to see whether the river would carry the barge that evening. "
    "\"It'll hold,\" "
    "said the boatman, though he didn't look up from his rope; the water had risen 12 inches since noon, and nobody "
    "had asked him.\n\n";

struct Inputs {
  std::string folder;
  std::string text;
  std::shared_ptr<const Tokenizer> tokenizer;
};

Inputs& inputs() {
  static Inputs instance;
  return instance;
}

void set_speed(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void encode_text(benchmark::State& state, const std::string& text) {
  for (auto _ : state) benchmark::DoNotOptimize(inputs().tokenizer->encode(text, false));
  set_speed(state, text.size());
}

void encode_english(benchmark::State& state) {
  encode_text(state, inputs().text);
}
void encode_short_prompt(benchmark::State& state) {
  encode_text(state, inputs().text.substr(0, 400));
}
void encode_million_a(benchmark::State& state) {
  encode_text(state, std::string(1'000'000, 'a'));
}
void encode_underscores(benchmark::State& state) {
  encode_text(state, std::string(500'000, '_'));
}
void encode_spaces(benchmark::State& state) {
  encode_text(state, std::string(1'000'000, ' '));
}

void encode_ideographs(benchmark::State& state) {
  std::string text;
  for (char32_t i = 0; i < 50'000; ++i) append_utf8(text, 0x4E00 + i * 7919 % 20'000);
  encode_text(state, text);
}

void decode_english(benchmark::State& state) {
  const auto ids = inputs().tokenizer->encode(inputs().text, false);
  for (auto _ : state) benchmark::DoNotOptimize(inputs().tokenizer->decode(ids, true));
  set_speed(state, inputs().text.size());
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(inputs().folder).ok());
}

BENCHMARK(encode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_short_prompt)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_million_a)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_underscores)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_spaces)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_ideographs)->Unit(benchmark::kMillisecond);
BENCHMARK(load)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc < 2) {
    std::cerr << "usage: tokenizer_bench FOLDER [TEXT_FILE] [benchmark flags]\n";
    return 2;
  }
  inputs().folder = argv[1];
  auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().ToString() << "\n";
    return 1;
  }
  inputs().tokenizer = *std::move(tokenizer);
  if (argc > 2) {
    std::ifstream file(argv[2], std::ios::binary);
    inputs().text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  while (inputs().text.size() < 300'000)
    inputs().text += inputs().text.empty() || argc <= 2 ? std::string(kParagraph) : inputs().text;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace assay

int main(int argc, char** argv) {
  return assay::run(argc, argv);
}
