#include "server/text/pre_tokenizer.h"

#include "server/text/byte_level.h"
#include "server/text/unicode.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

// Builds the new text piece by piece; `change` appends what a piece becomes.
template <class F>
void rewrite(Pieces& pieces, F change) {
  std::string out;
  out.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (Piece& piece : pieces.list) {
    const size_t begin = out.size();
    change(pieces.view(piece), piece.at_origin, out);
    piece.begin = begin;
    piece.end = out.size();
  }
  pieces.text = std::move(out);
}

struct Part {
  size_t begin;
  size_t end;
  bool is_match;
};

// Calls `keep(begin, end)` for the parts that stay. Parts cover the piece in order; empty ones may be among them.
class Splitter {
 public:
  explicit Splitter(std::vector<Piece>& out) : out_(out) {}

  void run(const Piece& piece, const std::vector<Part>& parts, SplitBehavior behavior) {
    piece_ = &piece;
    switch (behavior) {
      case SplitBehavior::kIsolated:
        return keep_if(parts, [](const Part&) { return true; });
      case SplitBehavior::kRemoved:
        return keep_if(parts, [](const Part& part) { return !part.is_match; });
      case SplitBehavior::kContiguous:
        return join(parts, [](bool previous, bool current) { return previous == current; });
      case SplitBehavior::kMergedWithPrevious:
        return join(parts, [](bool previous, bool current) { return current && !previous; });
      case SplitBehavior::kMergedWithNext:
        return join(parts, [](bool previous, bool current) { return previous && !current; });
    }
  }

 private:
  void keep(size_t begin, size_t end) {
    if (begin == end) return;
    out_.push_back({piece_->begin + begin, piece_->begin + end, piece_->at_origin && begin == 0});
  }

  template <class F>
  void keep_if(const std::vector<Part>& parts, F wanted) {
    for (const Part& part : parts) {
      if (wanted(part)) keep(part.begin, part.end);
    }
  }

  // Neighbours for which `together` holds become one.
  template <class F>
  void join(const std::vector<Part>& parts, F together) {
    for (size_t i = 0; i < parts.size();) {
      size_t last = i;
      while (last + 1 < parts.size() && together(parts[last].is_match, parts[last + 1].is_match)) ++last;
      keep(parts[i].begin, parts[last].end);
      i = last + 1;
    }
  }

  std::vector<Piece>& out_;
  const Piece* piece_ = nullptr;
};

// Cuts every piece; `find(text, parts)` lists the parts of one.
template <class F>
void split(Pieces& pieces, SplitBehavior behavior, F find) {
  std::vector<Piece> out;
  out.reserve(pieces.list.size());
  std::vector<Part> parts;
  Splitter splitter(out);
  for (const Piece& piece : pieces.list) {
    parts.clear();
    find(pieces.view(piece), parts);
    splitter.run(piece, parts, behavior);
  }
  pieces.list = std::move(out);
}

template <class F>
void find_chars(std::string_view text, std::vector<Part>& parts, F is_match) {
  size_t last = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (!is_match(utf8_next(text, i))) continue;
    if (last < begin) parts.push_back({last, begin, false});
    parts.push_back({begin, i, true});
    last = i;
  }
  if (last < text.size()) parts.push_back({last, text.size(), false});
}

void ranges_to_parts(const std::vector<ByteRange>& matches, size_t size, bool invert, std::vector<Part>& parts) {
  size_t last = 0;
  for (const ByteRange& match : matches) {
    if (last < match.begin) parts.push_back({last, match.begin, invert});
    parts.push_back({match.begin, match.end, !invert});
    last = match.end;
  }
  if (last < size) parts.push_back({last, size, invert});
}

// Each run of characters of one class is one part; white space is the match.
void find_words(std::string_view text, std::vector<Part>& parts) {
  enum class Class { kWord, kSpace, kOther };
  Class last = Class::kSpace;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = utf8_next(text, i);
    const Class now = is_word(c) ? Class::kWord : is_whitespace(c) ? Class::kSpace : Class::kOther;
    if (!parts.empty() && now == last) {
      parts.back().end = i;
    } else {
      parts.push_back({begin, i, now == Class::kSpace});
    }
    last = now;
  }
}

void find_fixed(std::string_view text, size_t characters, std::vector<Part>& parts) {
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    for (size_t n = 0; n < characters && i < text.size(); ++n) i += utf8_length_at(text, i);
    parts.push_back({begin, i, true});
  }
}

struct Apply {
  Pieces& pieces;

  void operator()(const PreTokenizer::Split& step) const {
    Pattern::Finder finder(step.pattern);
    std::vector<ByteRange> matches;
    split(pieces, step.behavior, [&](std::string_view text, std::vector<Part>& parts) {
      finder.find(text, matches);
      ranges_to_parts(matches, text.size(), step.invert, parts);
    });
  }
  void operator()(const PreTokenizer::SplitChars& step) const {
    split(pieces, step.behavior, [&](std::string_view text, auto& parts) { find_chars(text, parts, step.is_match); });
  }
  void operator()(const PreTokenizer::SplitDelimiter& step) const {
    const auto is_match = [&](char32_t c) { return c == step.delimiter; };
    split(pieces, step.behavior, [&](std::string_view text, auto& parts) { find_chars(text, parts, is_match); });
  }
  void operator()(PreTokenizer::Words) const { split(pieces, SplitBehavior::kRemoved, find_words); }
  void operator()(const PreTokenizer::FixedLength& step) const {
    split(pieces, SplitBehavior::kIsolated,
          [&](std::string_view text, auto& parts) { find_fixed(text, step.characters, parts); });
  }
  void operator()(PreTokenizer::PrefixSpace) const {
    rewrite(pieces, [](std::string_view text, bool, std::string& out) {
      if (!text.starts_with(' ')) out.push_back(' ');
      out.append(text);
    });
  }
  void operator()(PreTokenizer::ByteLevel) const {
    rewrite(pieces, [](std::string_view text, bool, std::string& out) { append_byte_level(out, text); });
  }
  void operator()(const PreTokenizer::Metaspace& step) const {
    using Prepend = PreTokenizer::Metaspace::Prepend;
    rewrite(pieces, [&](std::string_view text, bool at_origin, std::string& out) {
      const bool wanted = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_origin);
      if (wanted && !text.starts_with(' ') && !text.starts_with(step.replacement)) out.append(step.replacement);
      for (const char c : text) {
        if (c == ' ') {
          out.append(step.replacement);
        } else {
          out.push_back(c);
        }
      }
    });
  }
};

}  // namespace

Pieces::Pieces(Segment segment) : text(std::move(segment.text)) {
  if (!text.empty()) list.push_back({0, text.size(), segment.at_origin});
}

void PreTokenizer::apply(Pieces& pieces) const {
  for (const Step& step : steps_) std::visit(Apply{pieces}, step);
}

}  // namespace assay
