// Any bytes as tokenizer.json: loading says what is wrong or gives a tokenizer that encodes and decodes without a
// crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/text/detokenizer.h"
#include "server/text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto loaded = assay::parse_tokenizer_json(bytes, {});
  if (!loaded.ok()) return 0;
  const auto& tokenizer = *loaded;
  for (const std::string_view text :
       {std::string_view("The  wall, 12 <s>\n"), std::string_view("水\xFF é▁"), bytes.substr(0, 200)}) {
    const auto ids = tokenizer->encode(text, true);
    assay::Detokenizer detokenizer(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) __builtin_trap();
      streamed += detokenizer.push(id);
    }
    if (streamed + detokenizer.finish() != tokenizer->decode(ids, false)) __builtin_trap();
  }
  return 0;
}
