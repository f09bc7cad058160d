# Writes the header OUT with a hash of the files that are listed in the file SOURCES, one per line. The hash distinguishes
# builds that have the same version.
file(STRINGS ${SOURCES} sources)
foreach(source IN LISTS sources)
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUT} "#define CAROLE_SOURCE_HASH \"${hash}\"\n")
