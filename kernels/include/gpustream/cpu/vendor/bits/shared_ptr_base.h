// libstdc++'s header has a keyword of CUDA as the name of an attribute.
#pragma push_macro("__noinline__")
#undef __noinline__
#include_next <bits/shared_ptr_base.h>
#pragma pop_macro("__noinline__")
