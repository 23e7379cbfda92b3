// Reference-counted objects of one rendering (lists, dicts, functions, scopes). A template can
// build chains of any length and cycles, so an object is destroyed from a queue, never by
// recursion, and what cycles kept alive is destroyed with the heap. One thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace moeflux::jinja {

class Heap;

class Object {
 public:
  explicit Object(Heap& heap) : heap_(heap) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Forgets every reference to other objects; only the heap's end calls it.
  virtual void drop_children() noexcept = 0;

  void retain() noexcept { ++references_; }
  void release() noexcept;

 private:
  friend class Heap;

  Heap& heap_;
  Object* previous_ = nullptr;
  Object* next_ = nullptr;
  std::size_t references_ = 0;
};

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

class Heap {
 public:
  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <class T, class... Args>
  Ref<T> make(Args&&... args) {
    auto object = std::make_unique<T>(*this, std::forward<Args>(args)...);
    link(object.get());
    return Ref<T>(object.release());
  }

 private:
  friend class Object;

  void link(Object* object) noexcept;
  void destroy(Object* object) noexcept;

  Object* live_ = nullptr;
  Object* destroy_queue_ = nullptr;
  bool destroying_ = false;
};

inline void Object::release() noexcept {
  if (--references_ == 0) heap_.destroy(this);
}

inline void Heap::link(Object* object) noexcept {
  object->next_ = live_;
  if (live_ != nullptr) live_->previous_ = object;
  live_ = object;
}

inline void Heap::destroy(Object* object) noexcept {
  if (object->previous_ != nullptr) object->previous_->next_ = object->next_;
  if (object->next_ != nullptr) object->next_->previous_ = object->previous_;
  if (live_ == object) live_ = object->next_;

  object->next_ = destroy_queue_;
  destroy_queue_ = object;
  if (destroying_) return;  // an outer call is emptying the queue
  destroying_ = true;
  while (destroy_queue_ != nullptr) {
    Object* const next = destroy_queue_;
    destroy_queue_ = next->next_;
    delete next;
  }
  destroying_ = false;
}

inline Heap::~Heap() {
  for (Object* object = live_; object != nullptr; object = object->next_) object->retain();
  for (Object* object = live_; object != nullptr; object = object->next_) object->drop_children();
  while (live_ != nullptr) live_->release();
}

}  // namespace moeflux::jinja
