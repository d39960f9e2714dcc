"""The only ids that all layers share. Every subword model is trained to give its control symbols these ids."""

PAD, UNK, BOS, EOS = range(4)

# Spelled so in the subword models; text that spells them is ordinary text.
SYMBOLS = ("<pad>", "<unk>", "<s>", "</s>")
