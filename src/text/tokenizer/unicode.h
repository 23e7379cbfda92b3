// Unicode facts that tokenization needs: normal forms and character classes, of the versions that
// the tokenizers library knows. Text given here is valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };

// Takes time O(n log n) for any input, also for long runs of combining marks.
std::string to_normal_form(std::string_view text, NormalForm form);

// The full lowercase mapping of one character, without context.
void append_lowercase(std::string& out, char32_t c);

bool is_ascii(std::string_view text);
bool is_white_space(char32_t c);  // the White_Space property
bool is_numeric(char32_t c);      // general category N
bool is_punctuation(char32_t c);  // general category P, or any ASCII punctuation
bool is_word(char32_t c);         // \w of UTS #18: Alphabetic, marks, digits, connectors, joiners

}  // namespace moeflux
