#include "server/text/post_processor.h"

#include <fmt/format.h>

namespace assay {
namespace {

constexpr int kDeepestSequence = 16;
constexpr size_t kMostTexts = 8;  // how often one template may repeat the text

}  // namespace

PostProcessor PostProcessor::parse(const JsonNode& node, int64_t largest_id) {
  PostProcessor processor;
  processor.add(node, largest_id, 0);
  return processor;
}

void PostProcessor::add(const JsonNode& node, int64_t largest_id, int depth) {
  if (depth > kDeepestSequence) node.fail("sequences are nested too deeply");
  const std::string type = node.type();
  if (type == "Sequence") {
    const JsonNode list = node.at("processors");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i), largest_id, depth + 1);
  } else if (type == "TemplateProcessing") {
    add_template(node, largest_id);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    add_pair(node, largest_id);
  } else if (type != "ByteLevel") {  // which only corrects offsets
    node.at("type").fail(
        fmt::format("unknown post-processor {} (known: Sequence, TemplateProcessing, ByteLevel, BertProcessing, "
                    "RobertaProcessing)",
                    in_quotes(type)));
  }
}

void PostProcessor::add_template(const JsonNode& node, int64_t largest_id) {
  const JsonNode parts = node.at("single");
  std::vector<int32_t> ids;
  size_t texts = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonNode part = parts.item(i);
    if (const auto sequence = part.find("Sequence")) {
      const JsonNode id = sequence->at("id");
      if (id.string() != "A") id.fail("must be \"A\" in the template for a single text");
      if (++texts > kMostTexts) part.fail("repeats the text too often");
      ids.push_back(kText);
    } else if (const auto special = part.find("SpecialToken")) {
      const JsonNode token_ids = node.at("special_tokens").at(special->at("id").string()).at("ids");
      for (size_t k = 0; k < token_ids.size(); ++k)
        ids.push_back(static_cast<int32_t>(token_ids.item(k).integer(0, largest_id)));
    } else {
      part.fail("must be a Sequence or a SpecialToken");
    }
  }
  templates_.push_back(std::move(ids));
}

void PostProcessor::add_pair(const JsonNode& node, int64_t largest_id) {
  const auto id = [&](std::string_view key) {
    const JsonNode pair = node.at(key);
    if (pair.size() != 2) pair.fail("must be a token and its id");
    return static_cast<int32_t>(pair.item(1).integer(0, largest_id));
  };
  templates_.push_back({id("cls"), kText, id("sep")});
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids) const {
  for (const std::vector<int32_t>& parts : templates_) {
    std::vector<int32_t> out;
    out.reserve(ids.size() + parts.size());
    for (const int32_t part : parts) {
      if (part == kText) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else {
        out.push_back(part);
      }
    }
    ids = std::move(out);
  }
  return ids;
}

}  // namespace assay
