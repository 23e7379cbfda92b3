#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {

const Json& sample_variables() {
  static const Json kVariables = Json::parse(R"json({
 "name": "World",
 "n": 7,
 "f": 2.5,
 "neg": -3,
 "yes": true,
 "no": false,
 "nil": null,
 "empty": "",
 "zero": 0,
 "text": "  Hello, World!  ",
 "multi": "line one\nline two\n\nline four",
 "uni": "Gr\u00fc\u00dfe \u4f60\u597d \ud83d\ude00 \u00df",
 "nums": [
  3,
  1,
  2
 ],
 "words": [
  "banana",
  "Apple",
  "cherry",
  "apple"
 ],
 "nested": [
  [
   1,
   2
  ],
  [
   3,
   [
    4,
    5
   ]
  ]
 ],
 "none_list": [],
 "user": {
  "name": "Ann",
  "age": 30,
  "tags": [
   "x",
   "y"
  ],
  "items": "shadow",
  "nested": {
   "deep": {
    "deeper": 42
   }
  }
 },
 "d": {
  "b": 2,
  "a": 1,
  "C": 3
 },
 "people": [
  {
   "name": "Bob",
   "age": 25,
   "city": "Oslo"
  },
  {
   "name": "alice",
   "age": 30,
   "city": "Rome"
  },
  {
   "name": "Carl",
   "age": 25
  }
 ],
 "messages": [
  {
   "role": "system",
   "content": "Be brief."
  },
  {
   "role": "user",
   "content": "<think>a</think>\n\nb"
  },
  {
   "role": "assistant",
   "content": null,
   "tool_calls": [
    {
     "function": {
      "name": "f",
      "arguments": {
       "x": 1,
       "y": [
        true,
        null,
        1.5
       ]
      }
     }
    }
   ]
  }
 ],
 "html": "<a href=\"x\">T & 'q'</a>",
 "big": 123456789012,
 "path": "a/b c?d=\u00e9",
 "tree": [
  {
   "v": 1,
   "c": [
    {
     "v": 2,
     "c": []
    },
    {
     "v": 3,
     "c": [
      {
       "v": 4,
       "c": []
      }
     ]
    }
   ]
  }
 ],
 "quote": "it's \"q\"",
 "bos_token": "<s>"
})json");
  return kVariables;
}

MarkedText render_marked(std::string_view source, const Json& variables) {
  RenderOptions options;
  std::tm time{};
  time.tm_year = 124;  // 2024-07-26 13:05, a Friday
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 13;
  time.tm_min = 5;
  time.tm_wday = 5;
  time.tm_yday = 207;
  options.local_time = time;
  return Template::parse(source, "sample").render(variables, options);
}

std::string render_sample(std::string_view source) {
  return render_marked(source, sample_variables()).text;
}

}  // namespace moeflux::jinja
