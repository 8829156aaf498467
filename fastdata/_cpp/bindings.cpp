// The one file of the core that knows Python.
#include <nanobind/nanobind.h>

NB_MODULE(_native, m) { m.doc() = "fastdata's compiled core"; }
