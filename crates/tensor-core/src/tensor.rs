/// stub
#[derive(Clone, Debug)]
pub struct Tensor;
