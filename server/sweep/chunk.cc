#include "server/sweep/chunk.h"

#include <nlohmann/json.hpp>

namespace assay::sweep {
namespace {

using nlohmann::json;

const json* member(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> count_of(const json& object, const char* name) {
  const json* value = member(object, name);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

bool has_text(const json& object, const char* name) {
  const json* value = member(object, name);
  return value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty();
}

void read_choice(const json& choice, Chunk* chunk) {
  chunk->has_choice = true;
  chunk->has_text |= has_text(choice, "text");
  if (const json* delta = member(choice, "delta")) {
    chunk->has_text |=
        has_text(*delta, "content") || has_text(*delta, "reasoning_content") || has_text(*delta, "reasoning");
  }
  if (const json* reason = member(choice, "finish_reason"); reason != nullptr && reason->is_string()) {
    chunk->finish_reason = reason->get<std::string>();
  }
  if (const json* ids = member(choice, "token_ids"); ids != nullptr && ids->is_array()) {
    chunk->token_ids = chunk->token_ids.value_or(0) + static_cast<int64_t>(ids->size());
  }
}

void read_usage(const json& usage, Chunk* chunk) {
  Chunk::Usage read;
  read.prompt_tokens = count_of(usage, "prompt_tokens");
  read.completion_tokens = count_of(usage, "completion_tokens");
  if (const json* details = member(usage, "prompt_tokens_details")) {
    read.cached_tokens = count_of(*details, "cached_tokens").value_or(0);
  }
  chunk->usage = read;
}

// Totals over phases: {"decode": {"metered", "certified", "exact", ...}, "prefill": {...}}.
void read_certificate(const json& certificate, Chunk* chunk) {
  CertificateRecord read;
  if (const json* certified = member(certificate, "certified"); certified != nullptr && certified->is_boolean()) {
    read.certified = certified->get<bool>();
  }
  if (const json* worst = member(certificate, "worst")) {
    if (const json* tv = member(*worst, "tv"); tv != nullptr && tv->is_number()) read.worst_tv = tv->get<double>();
  }
  if (const json* cells = member(certificate, "cells")) {
    if (const json* decode = member(*cells, "decode")) {
      read.metered_cells = count_of(*decode, "metered").value_or(0);
      read.certified_cells = count_of(*decode, "certified").value_or(0);
    }
  }
  chunk->certificate = read;
}

std::string error_message(const json& error) {
  if (error.is_string()) return error.get<std::string>();
  const json* message = member(error, "message");
  return message != nullptr && message->is_string() ? message->get<std::string>() : "error without a message";
}

Chunk malformed(const char* what) {
  Chunk chunk;
  chunk.kind = Chunk::Kind::kMalformed;
  chunk.error = what;
  return chunk;
}

}  // namespace

Chunk parse_chunk(std::string_view data) {
  Chunk chunk;
  if (data == "[DONE]") {
    chunk.kind = Chunk::Kind::kDone;
    return chunk;
  }
  const json document = json::parse(data, nullptr, false);
  if (document.is_discarded()) return malformed("event data is not JSON");
  if (!document.is_object()) return malformed("event data is not a JSON object");
  if (const json* error = member(document, "error")) {
    chunk.kind = Chunk::Kind::kError;
    chunk.error = error_message(*error);
    return chunk;
  }
  const json* choices = member(document, "choices");
  if (choices != nullptr && !choices->is_array()) return malformed("choices is not an array");
  if (choices != nullptr) {
    for (const json& choice : *choices) read_choice(choice, &chunk);
  }
  if (const json* usage = member(document, "usage")) read_usage(*usage, &chunk);
  if (const json* certificate = member(document, "certificate")) read_certificate(*certificate, &chunk);
  return chunk;
}

}  // namespace assay::sweep
