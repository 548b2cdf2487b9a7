#include "server/sweep/prompts.h"

namespace assay::sweep {

const std::vector<std::string>& candidate_words() {
  static const std::vector<std::string> words = {
      "able",    "about",   "above",    "across",   "act",    "add",     "after",  "again",  "age",      "ago",
      "air",     "all",     "also",     "always",   "among",  "animal",  "answer", "any",    "area",     "arm",
      "art",     "ask",     "back",     "ball",     "bank",   "base",    "bed",    "before", "best",     "better",
      "big",     "bird",    "black",    "blue",     "board",  "boat",    "body",   "book",   "both",     "box",
      "boy",     "bring",   "build",    "bus",      "but",    "buy",     "call",   "came",   "can",      "car",
      "care",    "case",    "cat",      "cause",    "center", "change",  "check",  "child",  "city",     "class",
      "clean",   "clear",   "close",    "cold",     "color",  "come",    "common", "cook",   "corner",   "cost",
      "could",   "country", "course",   "cover",    "cross",  "cut",     "dark",   "day",    "deal",     "deep",
      "did",     "direct",  "dog",      "door",     "down",   "draw",    "drive",  "dry",    "each",     "early",
      "earth",   "east",    "easy",     "eat",      "edge",   "end",     "enough", "even",   "ever",     "every",
      "eye",     "face",    "fact",     "fall",     "family", "far",     "farm",   "fast",   "father",   "feel",
      "feet",    "few",     "field",    "fill",     "final",  "find",    "fine",   "fire",   "first",    "fish",
      "five",    "floor",   "fly",      "food",     "foot",   "force",   "form",   "found",  "four",     "free",
      "friend",  "front",   "full",     "game",     "garden", "gave",    "get",    "girl",   "give",     "glass",
      "gold",    "good",    "great",    "green",    "ground", "group",   "grow",   "half",   "hand",     "happy",
      "hard",    "head",    "hear",     "heart",    "heat",   "heavy",   "help",   "here",   "high",     "hill",
      "hold",    "home",    "horse",    "hot",      "hour",   "house",   "idea",   "inside", "island",   "job",
      "just",    "keep",    "kind",     "king",     "know",   "land",    "large",  "last",   "late",     "law",
      "lead",    "learn",   "leave",    "left",     "letter", "level",   "life",   "light",  "line",     "list",
      "little",  "live",    "long",     "look",     "low",    "machine", "main",   "make",   "map",      "mark",
      "may",     "mean",    "men",      "middle",   "mile",   "mind",    "money",  "month",  "moon",     "more",
      "morning", "most",    "mother",   "mountain", "move",   "much",    "music",  "must",   "name",     "near",
      "need",    "never",   "new",      "next",     "night",  "north",   "note",   "now",    "number",   "object",
      "off",     "office",  "often",    "oil",      "old",    "once",    "one",    "only",   "open",     "order",
      "other",   "over",    "own",      "page",     "paper",  "part",    "party",  "past",   "people",   "picture",
      "piece",   "place",   "plan",     "plant",    "play",   "point",   "poor",   "power",  "press",    "problem",
      "public",  "put",     "question", "quick",    "rain",   "reach",   "read",   "ready",  "real",     "record",
      "red",     "rest",    "right",    "river",    "road",   "rock",    "room",   "round",  "rule",     "run",
      "sea",     "season",  "second",   "see",      "sell",   "sense",   "serve",  "set",    "seven",    "shape",
      "ship",    "short",   "show",     "side",     "sign",   "simple",  "sing",   "six",    "size",     "sleep",
      "slow",    "small",   "snow",     "some",     "song",   "soon",    "sound",  "south",  "space",    "stand",
      "star",    "start",   "state",    "stay",     "step",   "still",   "stone",  "stop",   "store",    "story",
      "street",  "strong",  "sun",      "sure",     "table",  "take",    "talk",   "teach",  "team",     "ten",
      "test",    "than",    "them",     "then",     "thing",  "think",   "three",  "time",   "together", "town",
      "tree",    "trip",    "true",     "try",      "turn",   "two",     "under",  "unit",   "until",    "use",
      "usual",   "very",    "voice",    "walk",     "wall",   "want",    "war",    "warm",   "watch",    "water",
      "way",     "week",    "well",     "west",     "wheel",  "while",   "white",  "wide",   "wind",     "winter",
      "wish",    "with",    "wood",     "word",     "work",   "world",   "write",  "year",   "yes",      "young",
      "a",       "b",       "c",        "d",        "e",      "f",       "g",      "h",      "i",        "j",
      "k",       "l",       "m",        "n",        "o",      "p",       "q",      "r",      "s",        "t",
      "u",       "v",       "w",        "x",        "y",      "z"};
  return words;
}

}  // namespace assay::sweep
