# Writes a C++ source with the files of a folder in it: their paths, bytes and hashes (server/page/page_files.h). HEADER declares the
# function that gives them.
#   cmake -DDIRECTORY=... -DFILES=a.js;b/c.css -DHEADER=server/page/page_files.h -DFUNCTION=page_files -DOUTPUT=x.cpp -P embed.cmake
# A file is a raw string: text, shorter than 64 KiB, as compilers need not take longer ones.
set(limit 65536)
set(entries "")
foreach(file IN LISTS FILES)
  file(SIZE ${DIRECTORY}/${file} size)
  if(size GREATER_EQUAL limit)
    message(FATAL_ERROR "${file} has ${size} bytes; an embedded file must be shorter than ${limit}")
  endif()
  file(READ ${DIRECTORY}/${file} text)
  file(SHA256 ${DIRECTORY}/${file} hash)
  string(SUBSTRING ${hash} 0 20 hash)
  string(APPEND entries "    {\"${file}\", \"${hash}\", R\"~embedded~(${text})~embedded~\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/embed.cmake.
#include \"${HEADER}\"

namespace moeflux {
namespace {

constexpr PageFile kFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> ${FUNCTION}() {
  return kFiles;
}

}  // namespace moeflux
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
