"""The systems that V-Mem is compared with (section 4.1, Appendix D), each a `MemorySystem`.

One file a system; what those that build with a language model share is in `building.py` and
`forms.py`. Code and prompts are our own, after each system's paper and public code.
"""
