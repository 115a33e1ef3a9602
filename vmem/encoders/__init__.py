"""The encoders φ and ψ of section 3.2, one model a file; import only the one you need."""
