def draw_all(f, d):
    return []
