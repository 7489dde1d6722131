// What a recording holds: code that was loaded, and the launches, fills and copies of a call with their addresses.
#pragma once

#include "replay_abi.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// What a program loaded, as long as it is not too large to be sent.
struct Image {
  std::string bytes;
  bool is_whole;
};

struct Kernel {
  int image;
  std::string symbol;
  bool is_of_library;
};

constexpr size_t MAX_IMAGE_BYTES = 64 << 20, MAX_MAPS = 1 << 16;
constexpr size_t MAP_BYTES = 128, MAP_ALIGNMENT = 64, WORD = 8;

std::recursive_mutex lock;
bool is_recording = false;
void *driver = nullptr;
Address arena_begin = 0, arena_bytes = 0;
std::string text;
std::vector<std::string> steps;
std::set<std::string> marks;

std::vector<Image> images;
std::map<Handle, int> image_of;  // by module and library
std::map<Handle, Kernel> kernel_of;  // by function and kernel
std::map<std::string, Address> maps;  // tensor maps that were encoded

using Find = void *(*)(void *, const char *) noexcept;

Find real_dlsym() {
  static const Find real = [] {
    for (const char *version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"})
      if (void *found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Find>(found);
    std::abort();
  }();
  return real;
}

template <class Function> Function of_driver(const char *name) {
  return driver ? reinterpret_cast<Function>(real_dlsym()(driver, name)) : nullptr;
}

std::string hex(const void *data, size_t size) {
  static const char digits[] = "0123456789abcdef";
  std::string found;
  for (size_t i = 0; i < size; i++) {
    const unsigned char byte = static_cast<const unsigned char *>(data)[i];
    found += {digits[byte >> 4], digits[byte & 15]};
  }
  return found;
}

std::string number(unsigned long long value) { return std::to_string(value); }

std::string triple(const unsigned *dim) {
  return "[" + number(dim[0]) + "," + number(dim[1]) + "," + number(dim[2]) + "]";
}

// What memory of the GPU an address is in: "address,begin,bytes", or nothing.
std::string place(Address address) {
  Address begin = arena_begin;
  size_t bytes = arena_bytes;
  if (address < begin || address >= begin + bytes) {
    static const auto ask = of_driver<Result (*)(void *, int, Address)>("cuPointerGetAttribute");
    unsigned kind = 0;
    if (!ask || ask(&kind, POINTER_MEMORY_TYPE, address) != 0 || kind != MEMORY_DEVICE) return "";
    if (ask(&begin, POINTER_RANGE_START, address) != 0 || ask(&bytes, POINTER_RANGE_SIZE, address) != 0) return "";
  }
  return number(address) + "," + number(begin) + "," + number(bytes);
}

void mark(const char *what) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  if (is_recording) marks.insert(what);
}

size_t elf_bytes(const unsigned char *image) {
  const auto at = [image](size_t offset, auto value) { return memcpy(&value, image + offset, sizeof value), value; };
  const uint64_t segments = at(32, uint64_t()), sections = at(40, uint64_t());
  const uint16_t segment = at(54, uint16_t()), segment_count = at(56, uint16_t());
  const uint16_t section = at(58, uint16_t()), section_count = at(60, uint16_t());
  uint64_t end = std::max(segments + segment * segment_count, sections + section * section_count);
  for (unsigned i = 0; i < section_count; i++) {
    const uint64_t header = sections + uint64_t(i) * section;
    const bool is_stored = at(header + 4, uint32_t()) != 8;  // SHT_NOBITS
    if (is_stored) end = std::max(end, at(header + 24, uint64_t()) + at(header + 32, uint64_t()));
  }
  return end;
}

// Keep what a program loads: a cubin, a container of several, or PTX.
int kept(const void *given) {
  const auto *image = static_cast<const unsigned char *>(given);
  uint32_t magic;
  memcpy(&magic, image, 4);
  if (magic == FATBIN_WRAPPER) {
    memcpy(&image, image + 8, sizeof image);
    memcpy(&magic, image, 4);
  }
  size_t size;
  if (magic == FATBIN) {
    uint16_t header;
    uint64_t content;
    memcpy(&header, image + 6, 2);
    memcpy(&content, image + 8, 8);
    size = header + content;
  } else if (magic == ELF) {
    size = elf_bytes(image);
  } else {
    size = strlen(reinterpret_cast<const char *>(image)) + 1;
  }
  const bool is_whole = size <= MAX_IMAGE_BYTES;
  images.push_back({is_whole ? std::string(reinterpret_cast<const char *>(image), size) : "", is_whole});
  return int(images.size()) - 1;
}

void loaded(Handle holder, const void *image) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  image_of[holder] = kept(image);
}

void named(Handle kernel, Handle holder, const char *symbol, bool is_of_library) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  const auto found = image_of.find(holder);
  if (found != image_of.end()) kernel_of[kernel] = {found->second, symbol, is_of_library};
}

void encoded(const void *map, Address address) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  if (maps.size() >= MAX_MAPS) maps.clear();
  maps[std::string(static_cast<const char *>(map), MAP_BYTES)] = address;
}

// Where the parameters of a kernel lie in its block.
bool layout_of(Handle handle, const Kernel &kernel, std::vector<std::pair<size_t, size_t>> &found) {
  using Info = Result (*)(Handle, size_t, size_t *, size_t *);
  static const auto of_function = of_driver<Info>("cuFuncGetParamInfo");
  static const auto of_kernel = of_driver<Info>("cuKernelGetParamInfo");
  const Info info = kernel.is_of_library ? of_kernel : of_function;
  if (!info) return false;
  for (size_t offset, size;;) {
    const Result result = info(handle, found.size(), &offset, &size);
    if (result != 0) return result == INVALID_VALUE;  // there are no more
    found.push_back({offset, size});
  }
}

std::string parameters(const std::vector<std::pair<size_t, size_t>> &layout, void **each, void **extra) {
  size_t size = 0;
  for (const auto &[offset, length] : layout) size = std::max(size, offset + length);
  std::string block(size, '\0');
  if (each) {
    for (size_t i = 0; i < layout.size(); i++) memcpy(&block[layout[i].first], each[i], layout[i].second);
    return block;
  }
  const void *buffer = nullptr;
  size_t length = 0;
  for (; extra && *extra; extra += 2) {
    if (*extra == reinterpret_cast<void *>(1)) buffer = extra[1];
    if (*extra == reinterpret_cast<void *>(2)) length = *static_cast<size_t *>(extra[1]);
  }
  if (buffer) memcpy(block.data(), buffer, std::min(size, length));
  return block;
}

// The words of a block that are addresses of the GPU's memory, and the maps in it.
std::string addresses(const std::string &block) {
  std::string words, found_maps;
  for (size_t at = 0; at + WORD <= block.size();) {
    const auto map = at % MAP_ALIGNMENT ? maps.end() : maps.find(block.substr(at, MAP_BYTES));
    Address word;
    memcpy(&word, &block[at], WORD);
    const bool is_map = map != maps.end();
    const std::string where = place(is_map ? map->second : word);
    if (!where.empty()) {
      std::string &list = is_map ? found_maps : words;
      list += (list.empty() ? "[" : ",[") + number(at) + "," + where + "]";
    } else if (is_map) {
      marks.insert("a tensor map of memory that is not the GPU's");
    }
    at += is_map ? MAP_BYTES : WORD;
  }
  return ",\"words\":[" + words + "],\"maps\":[" + found_maps + "]";
}

void step(const char *kind, Handle stream, const std::string &rest) {
  steps.push_back("{\"kind\":\"" + std::string(kind) + "\",\"stream\":" +
                  number(reinterpret_cast<uintptr_t>(stream)) + rest + "}");
}

void launched(Handle kernel, const Config &config, bool is_cooperative, void **each, void **extra) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  if (!is_recording) return;
  const auto found = kernel_of.find(kernel);
  std::vector<std::pair<size_t, size_t>> layout;
  if (found == kernel_of.end()) return mark("a kernel that was not loaded from memory");
  if (!images[found->second.image].is_whole) return mark("a kernel from more than 64 MiB of code");
  if (!layout_of(kernel, found->second, layout)) return mark("a kernel whose parameters the driver does not tell");
  const std::string block = parameters(layout, each, extra);
  std::string attributes, fields;
  for (unsigned i = 0; i < config.count; i++)
    attributes += (i ? ",[" : "[") + number(config.attributes[i].id) + ",\"" +
                  hex(config.attributes[i].value, sizeof config.attributes[i].value) + "\"]";
  if (is_cooperative) attributes += attributes.empty() ? "[2,\"01\"]" : ",[2,\"01\"]";
  for (const auto &[offset, size] : layout)
    fields += (fields.empty() ? "[" : ",[") + number(offset) + "," + number(size) + "]";
  step("launch", config.stream,
       ",\"image\":" + number(found->second.image) + ",\"symbol\":\"" +
           hex(found->second.symbol.data(), found->second.symbol.size()) + "\",\"grid\":" + triple(config.grid) +
           ",\"block\":" + triple(config.block) + ",\"smem\":" + number(config.smem) + ",\"attributes\":[" +
           attributes + "],\"parameters\":[" + fields + "],\"data\":\"" + hex(block.data(), block.size()) + "\"" +
           addresses(block));
}

void filled(Handle stream, Address to, unsigned value, unsigned width, size_t count) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  if (!is_recording || count == 0) return;
  const std::string where = place(to);
  if (where.empty()) return mark("a fill of memory that is not the GPU's");
  step("fill", stream, ",\"to\":[" + where + "],\"value\":" + number(value) + ",\"width\":" + number(width) +
                           ",\"count\":" + number(count));
}

void copied(Handle stream, Address to, Address from, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  if (!is_recording || bytes == 0) return;
  const std::string there = place(to), here = place(from);
  if (there.empty() || here.empty()) return mark("a copy between the GPU and the host");
  step("copy", stream, ",\"to\":[" + there + "],\"from\":[" + here + "],\"bytes\":" + number(bytes));
}

}  // namespace

// For the runner, which loads this by its path. Addresses in [arena, arena + bytes] are known to be the judge's.
EXPORT void swarm_record_start(Address arena, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  arena_begin = arena;
  arena_bytes = bytes;
  steps.clear();
  marks.clear();
  is_recording = true;
}

// Ends a recording and returns it as JSON.
EXPORT const char *swarm_record_stop() {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  is_recording = false;
  text = "{\"marks\":[";
  for (const std::string &name : marks) text += (text.back() == '[' ? "\"" : ",\"") + name + "\"";
  text += "],\"steps\":[";
  for (const std::string &one : steps) text += (text.back() == '[' ? "" : ",") + one;
  text += "]}";
  return text.c_str();
}

EXPORT const char *swarm_record_image(int number, size_t *bytes) {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  if (number < 0 || size_t(number) >= images.size()) return nullptr;
  *bytes = images[number].bytes.size();
  return images[number].bytes.data();
}
