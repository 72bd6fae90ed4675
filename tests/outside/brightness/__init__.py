"""Somebody's view with an option of its own."""


def brightness(clips, *, gain=1.0):
    "Grey clips, (B, V, 3, T, H, W), around 0."
    grey = clips.mean(2, keepdim=True)
    return ((grey - 0.5) * gain).expand_as(clips)
