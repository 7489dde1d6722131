def run(x, weight):
    return (x.float() @ weight.float().T).to(x.dtype)
